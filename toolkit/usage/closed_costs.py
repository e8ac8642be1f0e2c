"""The charges of closed days as the exact engine's values, of the sums that SQL made.

CSV, JSON and files show each charge. SQL has added and rounded them already, so that each row
becomes one value here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Charge, ChargePrices, Component, InstanceCost
from toolkit.accounting.days import day_costs_of
from toolkit.accounting.instances import Kind
from toolkit.accounting.parts import added
from toolkit.prices import PriceSource
from toolkit.usage import day_details
from toolkit.usage.database import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.parts import InstanceParts
    from toolkit.usage.month_answers import Answers

_CHARGES = """WITH own AS (SELECT instance_id, i FROM things SEMI JOIN costs USING (i) {own}),
    prices AS (
        SELECT i, component, attempt, known, string_agg(DISTINCT price_sources, ' ') AS sources,
            min(price_as_of) AS as_of
        FROM day_rows SEMI JOIN own USING (i) WHERE price_sources <> ''
        GROUP BY i, component, attempt, known
    ), refunded AS (
        SELECT i, attempt, string_agg(DISTINCT sources, ' ') AS sources, min(as_of) AS as_of
        FROM prices GROUP BY i, attempt
    )
    SELECT o.instance_id, s.component::VARCHAR, s.attempt::HUGEINT, s.micro, s.seconds, s.whole,
        s.known, coalesce(p.sources, r.sources), coalesce(p.as_of, r.as_of)
    FROM sums AS s JOIN own AS o USING (i)
        LEFT JOIN prices AS p ON p.i = s.i AND p.component = s.component AND p.known = s.known
            AND p.attempt IS NOT DISTINCT FROM s.attempt
        LEFT JOIN refunded AS r ON s.component = 'spot refund' AND r.i = s.i
            AND r.attempt IS NOT DISTINCT FROM s.attempt
    ORDER BY s.i, s.place"""
_COMPONENTS = {component.value: component for component in Component}


def charges(answers: Answers, names: Sequence[str] | None = None) -> list[Charge]:
    """Return the charges of instances, or all, in the report's order."""
    return [
        Charge(
            _COMPONENTS[component],
            name,
            attempt,
            micro,
            Fraction(seconds) if whole == 1 else Fraction(seconds, whole),
            known,
            prices_of(sources, as_of) if sources else None,
        )
        for name, component, attempt, micro, seconds, whole, known, sources, as_of in answers.rows(
            _CHARGES.format(own=_where("WHERE", names))
        )
    ]


@lru_cache(maxsize=4096)  # a report has few days and very many charges
def prices_of(sources: str, as_of: int) -> ChargePrices:
    """Return the prices of an amount, from the names of their sources."""
    names = frozenset(sources.split(" "))
    return ChargePrices(tuple(source for source in PriceSource if source in names), as_of)


def costs(
    answers: Answers, found: Sequence[Charge], names: Sequence[str] | None = None
) -> tuple[list[InstanceCost], dict[str, Instance]]:
    """Return the costs that charges make, and the instances.

    Both are in the report's order.
    """
    by_instance: dict[str, list[Charge]] = defaultdict(list)
    for charge in found:
        by_instance[charge.instance_id].append(charge)
    contents: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, content in answers.rows(
        f"""SELECT instance_id, content FROM closed_details
        WHERE subject = 'parts' {_where("AND", names)} ORDER BY usage_day"""  # noqa: S608
    ):
        contents[name].append(json.loads(content))
    made = [
        _cost(added([day_details.parts_of(content) for content in contents[name]], 0), own)
        for name, own in by_instance.items()
    ]
    return made, {name: day_details.instance_of(contents[name][-1]) for name in by_instance}


def _cost(item: InstanceParts, own: Sequence[Charge]) -> InstanceCost:
    refund = sum(charge.micro for charge in own if charge.component is Component.REFUND)
    gross = sum(charge.micro for charge in own) - refund
    seconds = item.seconds
    if item.kind is Kind.RACK:
        seconds = int(sum(charge.seconds for charge in own))
    return InstanceCost(
        instance_id=item.instance_id,
        seconds=seconds,
        gross=gross,
        refund=refund,
        prices=item.prices,
        charges=tuple(own),
        days=day_costs_of(item.days, gross, refund),
    )


def instances(answers: Answers) -> dict[str, Instance]:
    """Return the instances with a cost, as their last days had them."""
    rows = answers.rows(
        """SELECT arg_max(content, usage_day) FROM closed_details
        JOIN things AS t USING (instance_id) SEMI JOIN costs USING (i)
        WHERE subject = 'parts' GROUP BY t.i ORDER BY t.i"""
    )
    found = (day_details.instance_of(json.loads(content)) for (content,) in rows)
    return {item.instance_id: item for item in found}


def attempts(answers: Answers) -> dict[int, Attempt]:
    """Return the attempts as their last days had them."""
    rows = answers.rows(
        """SELECT arg_max(content, usage_day) FROM closed_details WHERE subject = 'attempt'
        GROUP BY attempt ORDER BY min(usage_day), arg_min(number, usage_day)"""
    )
    found = (day_details.attempt_of(content) for (content,) in rows)
    return {item.key: item for item in found}


def _where(word: str, names: Sequence[str] | None) -> str:
    if names is None:
        return ""
    return f"{word} instance_id IN ({', '.join(map(quoted, names)) or 'NULL'})"
