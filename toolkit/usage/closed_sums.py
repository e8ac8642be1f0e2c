"""The sums of closed days by SQL, to the micro-dollar those of the report.

A report of closed days asks for sums: by account and user, by component, by instance. DuckDB adds
the exact parts of all days and rounds them once for each instance, as `toolkit.accounting.parts`
does. Charges become Python's values only where somebody asks for each of them.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from toolkit.accounting.attempts import job_labels
from toolkit.accounting.charges import ChargePrices, Component
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.instances import Kind
from toolkit.accounting.report import NO_JOB, PRINTED, Group, Key
from toolkit.prices import PriceSource
from toolkit.usage import closed_costs, day_charges, day_details, month_answers, month_sums
from toolkit.usage.database import quoted
from toolkit.usage.month_answers import Answers
from toolkit.usage.store import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import Any

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import Charge, InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.usage.closed_store import ClosedDay
    from toolkit.usage.database import Database
    from toolkit.usage.month_answers import Rows

_WORK = f"('{Component.WORK}', '{Component.LOST}')"
_COLUMNS = {
    Key.ACCOUNT: "coalesce(nullif(account, ''), '(no account)')",
    Key.USER: "coalesce(nullif(user_name, ''), '(no user)')",
    Key.JOB: "job",
}
SUMMED_KEYS = frozenset(_COLUMNS)
"""Keys that the sums can be grouped by."""

_SUMS = (
    ("i", "BIGINT"), ("component", "VARCHAR"), ("attempt", "DECIMAL(20, 0)"),
    ("known", "BOOLEAN"), ("seconds", "HUGEINT"), ("place", "BIGINT"), ("micro", "BIGINT"),
    ("whole", "BIGINT"),
)  # fmt: skip
_COSTS = (
    ("i", "BIGINT"), ("gross", "HUGEINT"), ("refund", "HUGEINT"), ("has_unknown", "BOOLEAN"),
)  # fmt: skip
_PRICES = (
    ("i", "BIGINT"), ("component", "VARCHAR"), ("attempt", "DECIMAL(20, 0)"),
    ("known", "BOOLEAN"), ("price_sources", "VARCHAR"), ("price_as_of", "BIGINT"),
)  # fmt: skip


class ClosedSums:
    """The sums of some closed days, in an open database."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._exact_costs: dict[str, InstanceCost] = {}  # of instances that SQL leaves

    @classmethod
    def of(
        cls,
        database: Database,
        folder: Path,
        days: Sequence[ClosedDay],
        policy: CostPolicy,
        *,
        until: int,
        exact: Callable[[Sequence[str]], Sequence[InstanceCost]],
    ) -> ClosedSums | None:
        """Add the days up; None if only the exact engine can.

        It alone divides shared costs, and tells apart two attempts of one DBIndex. `exact` gives
        its costs of instances whose numbers are too long for SQL.
        """
        if Payer.SHARED in policy.payers().values():
            return None
        details = rows_of(folder, [day.details for day in days], day_details.COLUMNS)
        closed_details = f"CREATE OR REPLACE TEMP VIEW closed_details AS SELECT * FROM {details}"  # noqa: S608
        kept = month_sums.folder_of(folder, days, until)
        if kept.is_dir():

            def prepare() -> None:
                database.run("SET threads = 1")  # so small a work takes longer in two
                database.run(closed_details)
                month_sums.read(database, kept)

            return cls(Answers(database, month_answers.read(kept), prepare))
        database.run(closed_details)
        charges = [file for day in days for file in day.charges]
        rows = rows_of(folder, charges, day_charges.COLUMNS)
        database.run(f"CREATE OR REPLACE TEMP VIEW closed_rows AS SELECT * FROM {rows}")  # noqa: S608
        for table in (_DETAILS, _NAMES, _TEXTS):
            database.run(table)
        if database.value("SELECT bool_or(is_equal_key) FROM names"):
            return None
        from toolkit.usage.engine_input import make_payers  # sums that are kept need none

        make_payers(database, policy)
        database.run_file("closed_sums.sql", until=until)
        sums = cls(Answers(database))
        sums._add_large(database, exact)
        _name_jobs(database)
        database.run(_NAMED_SUMS)
        return sums

    def _add_large(
        self, database: Database, exact: Callable[[Sequence[str]], Sequence[InstanceCost]]
    ) -> None:
        """Add the instances that SQL leaves to the exact engine."""
        query = "SELECT DISTINCT instance_id, i FROM too_large JOIN things USING (i)"
        numbers = dict(database.rows(query))
        if not numbers:
            return
        sums: list[Sequence[object]] = []
        costs: list[Sequence[object]] = []
        prices: list[Sequence[object]] = []
        for cost in exact(sorted(numbers)):
            self._exact_costs[cost.instance_id] = cost
            number = numbers[cost.instance_id]
            costs.append((number, cost.gross, cost.refund, cost.has_unknown))
            for place, charge in enumerate(cost.charges):
                seconds = charge.seconds.numerator, place, charge.micro, charge.seconds.denominator
                name = charge.component.value
                sums.append((number, name, charge.attempt, charge.price_known, *seconds))
                if charge.prices is not None:
                    found = " ".join(charge.prices.sources), charge.prices.as_of
                    prices.append((number, name, charge.attempt, charge.price_known, *found))
        for table, columns, rows in (("sums", _SUMS, sums), ("costs", _COSTS, costs)):
            database.table("large", columns, rows)
            database.run(f"INSERT INTO {table} SELECT * FROM large")  # noqa: S608
        database.table("large", _PRICES, prices)
        database.run("INSERT INTO day_rows BY NAME FROM large")  # the prices of charges
        database.run(
            "INSERT INTO component_prices SELECT component, price_sources, price_as_of FROM large"
        )

    def texts(self) -> list[tuple[str, str]]:
        """Return all days' notes, and what was set aside: subject, content."""
        return self._answers.rows("SELECT subject, content FROM day_texts")

    def net(self, kind: Kind | None = None) -> tuple[int, int]:
        """Return the cost before refunds, and the refunds, of a kind."""
        of_kind = "" if kind is None else f"JOIN things USING (i) WHERE kind = {quoted(kind.value)}"
        ((gross, refund),) = self._answers.rows(
            f"SELECT sum(gross), sum(refund) FROM costs {of_kind}"  # noqa: S608
        )
        return int(gross or 0), int(refund or 0)

    def unknown_instances(self) -> list[str]:
        """Return the instances with an unknown cost, in the report's order."""
        query = "SELECT instance_id FROM costs JOIN things USING (i) WHERE has_unknown ORDER BY i"
        return [name for (name,) in self._answers.rows(query)]

    def kinds(self) -> frozenset[str]:
        """Return the kinds of what has a cost."""
        query = "SELECT DISTINCT kind FROM costs JOIN things USING (i)"
        return frozenset(kind for (kind,) in self._answers.rows(query))

    def components(self) -> dict[Component, tuple[int, bool]]:
        """Return each component's sum, and whether a part of it is unknown."""
        rows = self._answers.rows(
            "SELECT component, sum(micro)::BIGINT, bool_or(NOT known) FROM sums GROUP BY component"
        )
        return {Component(name): (micro, unknown) for name, micro, unknown in rows}

    def prices(self) -> dict[Component, ChargePrices]:
        """Return the sources and the age of each component's prices."""
        known: dict[Component, ChargePrices] = {}
        for name, sources, as_of in self._answers.rows("SELECT * FROM component_prices"):
            prices = ChargePrices(tuple(map(PriceSource, sources.split(" "))), as_of)
            known[Component(name)] = prices.joined(known.get(Component(name)))
        return known

    def priced_by(self, name: Callable[[PriceSource, int], str]) -> dict[str, int]:
        """Return the number of instances for each name of their prices."""
        counts: dict[str, int] = {}
        for prices, count in self._answers.rows(
            """SELECT prices, count(*) FROM (
                SELECT t.i, string_agg(d.prices, ' ' ORDER BY d.usage_day) AS prices
                FROM details AS d JOIN things AS t USING (instance_id) SEMI JOIN costs USING (i)
                WHERE d.subject = 'parts' AND d.prices <> '' GROUP BY t.i
            ) GROUP BY prices ORDER BY min(i)"""
        ):
            pairs = (pair.partition("@") for pair in prices.split(" "))
            for text in dict.fromkeys(name(PriceSource(pair[0]), int(pair[2])) for pair in pairs):
                counts[text] = counts.get(text, 0) + count
        return counts

    def dearest(self, count: int) -> list[tuple[str, int, int, bool]]:
        """Return the dearest instances: id, gross, refund, whether a part is unknown."""
        return self._answers.rows(
            f"""SELECT instance_id, gross::BIGINT, refund::BIGINT, has_unknown
            FROM costs JOIN things USING (i) ORDER BY gross DESC, instance_id LIMIT {count}"""  # noqa: S608
        )

    def number_of_costs(self) -> int:
        """Return how many instances and resources have a cost."""
        ((number,),) = self._answers.rows("SELECT count(*) FROM costs")
        return int(number)

    def charges(self) -> list[Charge]:
        """Return every charge, in the report's order."""
        return closed_costs.charges(self._answers)

    def costs(self) -> tuple[InstanceCost, ...]:
        """Return the cost of each instance, in the report's order."""
        return self.costs_of(None)[0]

    def costs_of(
        self, names: Sequence[str] | None
    ) -> tuple[tuple[InstanceCost, ...], dict[str, Instance]]:
        """Return the costs of some instances, or of all, and these."""
        charges = closed_costs.charges(self._answers, names)
        costs, instances = closed_costs.costs(self._answers, charges, names)
        exact = self._exact_costs
        return tuple(exact.get(cost.instance_id, cost) for cost in costs), instances

    def instances(self) -> dict[str, Instance]:
        """Return the instances with a cost."""
        return closed_costs.instances(self._answers)

    def attempts(self) -> dict[int, Attempt]:
        """Return the attempts that have a charge."""
        return closed_costs.attempts(self._answers)

    def printed(self) -> dict[str, Rows]:
        """Return the answers of a month's printed report."""
        answers = self._answers.kept = {}
        self.texts()
        self.number_of_costs()
        self.groups((Key.ACCOUNT, Key.USER))
        self.unknown_instances()
        self.components()
        self.prices()
        self.priced_by(lambda source, _: source)
        self.costs_of([name for name, *_ in self.dearest(PRINTED)])
        for kind in (None, *map(Kind, self.kinds())):
            self.net(kind)
        self._answers.kept = None
        return answers

    def groups(self, keys: Sequence[Key], *, with_prices: bool = False) -> list[Group]:
        """Return the rows by the given keys, as `Report.groups` does."""
        columns = ", ".join(
            f"CASE WHEN attempt IS NULL THEN '{NO_JOB}' ELSE {_COLUMNS[key]} END AS k{number}"
            for number, key in enumerate(keys)
        )
        names = ", ".join(f"k{number}" for number in range(len(keys)))
        keyed = f"""CREATE OR REPLACE TEMP TABLE keyed AS
            SELECT {columns}, job, attempt, i, place, component, micro, known, seconds, whole
            FROM named_sums"""  # noqa: S608
        rows = partial(self._answers.rows, table=keyed)
        groups: dict[tuple[str, ...], Group] = {}
        width = len(keys)

        def group(row: Iterable[Any]) -> tuple[Group, list[Any]]:
            values = list(row)
            key_values = tuple(values[:width])
            return groups.setdefault(key_values, Group(key_values)), values[width:]

        for row in rows(
            f"""SELECT {names}, component, sum(micro)::BIGINT, bool_or(NOT known) FROM keyed
            GROUP BY {names}, component ORDER BY min((i, place))"""  # noqa: S608
        ):
            item, (name, micro, unknown) = group(row)
            item.micro[Component(name)] += micro
            if unknown:
                item.unknown.add(Component(name))
        for row in rows(
            f"""SELECT {names}, whole, sum(seconds) FROM keyed WHERE component IN {_WORK}
            GROUP BY {names}, whole"""  # noqa: S608
        ):
            item, (whole, seconds) = group(row)
            item.seconds += Fraction(int(seconds), int(whole))
        for row in rows(
            f"""SELECT {names}, list(DISTINCT attempt::UBIGINT), list(DISTINCT job) FROM keyed
            WHERE attempt IS NOT NULL GROUP BY {names}"""  # noqa: S608
        ):
            item, (attempts, jobs) = group(row)
            item.attempts.update(attempts)
            item.jobs.update(jobs)
        for row in rows(_GROUP_PRICES.format(names=names)) if with_prices else ():
            item, (sources, as_of) = group(row)
            item.prices = closed_costs.prices_of(sources, as_of)
        found = groups.values()
        return sorted(found, key=lambda item: (not item.has_jobs, -item.total, item.key_values))


def keep_month(
    database: Database, store: Path, days: Sequence[ClosedDay], until: int, temporary: Path
) -> None:
    """Write the sums of a closed month, if SQL can make them."""
    folder = month_sums.folder_of(store, days, until)
    policies = {tuple(sorted(day.policy.items())) for day in days}
    if folder.is_dir() or len(policies) > 1:
        return
    policy = CostPolicy(**{key: Payer(value) for key, value in days[0].policy.items()})
    sums = ClosedSums.of(database, store, days, policy, until=until, exact=lambda _: ())
    if sums is not None and not database.rows("SELECT 1 FROM too_large LIMIT 1"):
        month_sums.write(database, folder, temporary, sums.printed())


def _name_jobs(database: Database) -> None:
    """Tell jobs apart whose ids are equal."""
    shared = "SELECT job_id FROM names GROUP BY job_id HAVING count(*) > 1"
    if not database.rows(shared):
        return
    rows = database.rows(
        f"""SELECT content FROM closed_details SEMI JOIN ({shared}) USING (job_id)
        WHERE subject = 'attempt' ORDER BY usage_day"""  # noqa: S608  # our own text
    )
    attempts = [day_details.attempt_of(content) for (content,) in rows]
    by_key = {attempt.key: attempt for attempt in attempts}
    labels = job_labels(by_key.values())
    changed = [(key, label) for key, label in labels.items() if label != by_key[key].job_id]
    if changed:
        columns = (("attempt", "DECIMAL(20, 0)"), ("job", "VARCHAR"))
        database.table("labels", columns, list(changed))
        database.run(
            "UPDATE names SET job = l.job FROM labels AS l WHERE names.attempt = l.attempt"
        )


# Most of the files is JSON, so what SQL asks for is read once.
_DETAILS = """CREATE OR REPLACE TEMP TABLE details AS
    SELECT * EXCLUDE (content) FROM closed_details WHERE subject IN ('parts', 'attempt')"""

_TEXTS = f"""CREATE OR REPLACE TEMP VIEW day_texts AS
    SELECT subject, content FROM closed_details
    WHERE subject IN ({", ".join(map(quoted, day_details.SUBJECTS_OF_TEXTS))})
    ORDER BY usage_day, number"""  # noqa: S608  # our own names

_NAMED_SUMS = """CREATE OR REPLACE TEMP VIEW named_sums AS
    SELECT s.*, n.job, n.account, n.user_name FROM sums AS s LEFT JOIN names AS n USING (attempt)"""

_GROUP_PRICES = """SELECT {names}, string_agg(DISTINCT price_sources, ' '), min(price_as_of)
    FROM keyed AS k JOIN day_rows AS d ON d.i = k.i AND d.component = k.component
        AND d.known = k.known AND d.attempt IS NOT DISTINCT FROM k.attempt
    WHERE price_sources <> '' GROUP BY {names}"""
"""The prices of refunds are those of charges of the same attempts."""

_NAMES = """CREATE OR REPLACE TEMP TABLE names AS
    WITH last_days AS (
        SELECT attempt, arg_max({
                'job_id': job_id, 'job': job_id, 'account': account, 'user_name': user_name
            }, usage_day) AS names,
            attempt >= 18446744073709551616 OR min(job_id) <> max(job_id)
                OR min(coalesce(submitted, -1)) <> max(coalesce(submitted, -1)) AS is_equal_key
        FROM details WHERE subject = 'attempt' GROUP BY attempt
    )
    SELECT attempt, unnest(names), is_equal_key FROM last_days"""
