"""The head's own records as a source of spending."""

from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budgets.memory import Memory
from slurmplugins.budgets.spending import HeadSpending, allocations
from slurmplugins.config import burst as burst_config
from slurmplugins.config.budgets import PeriodKind
from slurmplugins.errors import SlurmUnreachable
from slurmplugins.reconciler.instance_ledger import LedgerEntry
from tests.fakes.budgets import NOVEMBER, NOW, a_budget, a_config, a_job, a_waiting_job
from tests.fakes.engine import burst

ENTRY = LedgerEntry(
    instance_id="i-1",
    node="gpu-001",
    pool="gpu",
    partition="spot",
    attempt="a",
    type="g5.xlarge",
    zone="us-east-1a",
    lifecycle="spot",
    launched_at=NOW - 900,
    running_at=NOW - 800,
    price="0.5",
)


class FakeAccounting:
    """A slurmdbd that answers with these rows, or with too much."""

    def __init__(self, *rows, too_much=False, settled=True) -> None:
        self._rows, self._too_much, self._settled = rows, too_much, settled
        self.asked = []

    def is_settled(self):
        self.asked.append("sdiag")
        return self._settled

    def window(self, since, until):
        self._window = since, until
        self.asked.append("sacct")
        return None if self._too_much else self

    def rows(self):
        since, until = self._window
        return [
            row for row in self._rows if not _ended_before(row, since) and not _after(row, until)
        ]


def _ended_before(row, since):
    return row["End"].isdecimal() and int(row["End"]) <= since


def _after(row, until):
    return row["Start"].isdecimal() and int(row["Start"]) >= until


def source(*entries, accounting=None, **changes):
    config = replace(burst_config.parse(burst()), **changes)
    return HeadSpending(config, a_config(), lambda: entries, accounting or FakeAccounting())


def spans(*entries, **changes):
    items = source(*entries, **changes).instances(NOW)
    return [(NOW - item.begin, NOW - item.end, item.usd_per_hour) for item in items]


def test_an_instance_is_billed_from_running_to_its_end():
    half = Decimal("0.5")
    assert spans(ENTRY) == [(800, 0, half)]
    assert spans(replace(ENTRY, running_at=None)) == [(900, 0, half)]
    assert spans(replace(ENTRY, ended_at=NOW - 100)) == [(800, 100, half)]


def test_an_end_that_nobody_saw_is_no_later_than_the_last_measure():
    # EC2 forgets an instance an hour after its end, and the head may be away for longer.
    forgotten = replace(
        ENTRY, launched_at=NOW - 20_000, running_at=NOW - 20_000, ended_at=NOW - 60, end_seen=False
    )

    def usd(entry, measured_until):
        memory = Memory(NOVEMBER, measured_until, last_account={"i-1": "vision"})
        *_, last = source(entry).measured(memory, [], NOW)
        return last.days.get("vision", {}).get("2026-11-26", 0)

    assert usd(forgotten, NOW - 10_860) == 0
    assert usd(replace(forgotten, end_seen=True), NOW - 10_860) == Decimal("1.5")
    assert spans(forgotten) == [(20_000, 60, Decimal("0.5"))], "a first measure knows no better"


def test_a_stop_is_billed_to_nobody():
    half = Decimal("0.5")
    stopped = replace(ENTRY, stops=((NOW - 700, NOW - 300), (NOW - 200, NOW - 50)))
    assert spans(stopped) == [(800, 700, half), (300, 200, half), (50, 0, half)]
    still_stopped = replace(ENTRY, stops=((NOW - 700, None),))
    assert spans(still_stopped) == [(800, 700, half)]


def test_an_unknown_price_is_the_dearest_of_the_pool():
    for price in ("", "0", "NaN", "x", "-1"):
        assert spans(replace(ENTRY, price=price)) == [(800, 0, Decimal("1.006"))]


def test_the_head_and_instances_of_no_node_are_nobodys():
    assert spans(replace(ENTRY, pool="head"), replace(ENTRY, node="")) == []


def test_a_static_node_is_known_as_such():
    (item,) = source(ENTRY, static_nodes=frozenset({"gpu-001"})).instances(NOW)
    assert item.is_static


def test_purchases_have_the_price_that_was_paid():
    (purchase,) = source(ENTRY).purchases(NOW)
    assert (purchase.pool, purchase.usd_per_hour, purchase.seconds) == ("gpu", Decimal("0.5"), 800)


def test_waiting_jobs_and_jobs_without_nodes_cost_nothing():
    ended = a_job(9, states=frozenset({"COMPLETED"}), end=NOW - 60)
    jobs = [a_job(), a_waiting_job(), ended, a_job(10, nodes=()), a_job(11, begin=0.0)]
    assert [(item.nodes, item.end) for item in allocations(jobs, a_config(), NOW)] == [
        (("gpu-007",), NOW), (("gpu-009",), NOW - 60)
    ]  # fmt: skip


def test_rows_of_sacct_that_never_started_or_name_other_nodes_are_left_out():
    row = {
        "Account": "vision", "Start": str(int(NOW) - 3600), "End": str(int(NOW)),
        "NodeList": "gpu-002", "AllocTRES": "billing=2000",
    }  # fmt: skip
    rows = (row, row | {"Start": "Unknown"}, row | {"NodeList": "gpu-[1"})
    memory = Memory(measured_from=NOW - 3600, measured_until=NOW - 3600)
    *_, last = source(accounting=FakeAccounting(*rows)).measured(memory, [], NOW)
    assert last.days == {"vision": {"2026-11-26": Decimal(2)}}


def test_a_new_projects_past_is_read_from_slurmdbd_and_a_removed_ones_is_forgotten():
    row = {
        "Account": "vision", "Start": str(int(NOW) - 7200), "End": str(int(NOW) - 3600),
        "NodeList": "gpu-002", "AllocTRES": "billing=2000", "WCKey": "*ImageNet",
    }  # fmt: skip
    config = a_config(a_budget(accounts=(), projects=("imagenet",)))
    known = Memory(NOVEMBER, NOW - 60, days={"vision": {}}, projects={"coco": {"vision": {}}})
    spending = HeadSpending(burst_config.parse(burst()), config, tuple, FakeAccounting(row))
    first, *_, last = spending.measured(known, [], NOW)
    days = {"vision": {"2026-11-26": Decimal(2)}}
    assert first.projects == last.projects == {"imagenet": days}
    assert last.days == {"vision": {}}, "the account's own days were measured before"
    again = [item.projects for item in spending.measured(last, [], NOW + 60)]
    assert again == [last.projects], "once"


def row_of(day, hours=2, **changes):
    begin = int(NOVEMBER) + (day - 1) * 86_400
    return {
        "Account": "vision", "Start": str(begin), "End": str(begin + hours * 3600),
        "NodeList": "gpu-002", "AllocTRES": "billing=1000", "WCKey": "imagenet", **changes,
    }  # fmt: skip


def test_the_days_before_the_first_one_are_read_once_a_budget_needs_them():
    budget = a_budget(projects=("imagenet",))
    accounting = FakeAccounting(row_of(1), row_of(9), row_of(10, hours=14))
    spending = HeadSpending(burst_config.parse(burst()), a_config(budget), tuple, accounting)
    tenth = NOVEMBER + 9 * 86_400 + 43_200
    days = {"2026-11-10": Decimal(2)}
    known = Memory(tenth, NOW - 60, days={"vision": days}, projects={"imagenet": {"vision": days}})
    *_, last = spending.measured(known, [], NOW)
    read = {"2026-11-01": Decimal(2), "2026-11-09": Decimal(2), "2026-11-10": Decimal(14)}
    assert last.days == {"vision": read}
    assert last.projects == {"imagenet": {"vision": read}}
    assert (last.measured_from, last.measured_until) == (NOVEMBER, NOW)
    assert [item.days for item in spending.measured(last, [], NOW + 60)] == [last.days], "once"


def test_earlier_days_that_a_report_has_closed_keep_its_amounts():
    spending = source(accounting=FakeAccounting(row_of(8), row_of(9)))
    tenth = NOVEMBER + 9 * 86_400
    closed = {"vision": {"2026-11-09": Decimal(7)}}
    known = Memory(tenth, NOW - 60, closed_until="2026-11-09", days=closed)
    *_, last = spending.measured(known, [], NOW)
    assert last.days == {"vision": {"2026-11-08": Decimal(2), "2026-11-09": Decimal(7)}}


def test_figures_go_on_where_earlier_days_can_not_be_read():
    spending = source(accounting=FakeAccounting(too_much=True))
    memories = spending.measured(Memory(NOW - 3600, NOW - 60), [], NOW)
    assert next(memories).measured_until == NOW
    with pytest.raises(SlurmUnreachable, match="a day of attempts"):
        next(memories)


def test_old_days_are_forgotten_but_those_of_a_long_grant():
    days = {"vision": {"2020-01-01": Decimal(1), "2026-11-01": Decimal(2)}}
    old = Memory(NOVEMBER, NOW - 60, days=days, projects={"imagenet": days}, nobody=days["vision"])

    def kept(since):
        budget = a_budget(
            projects=("imagenet",), kind=PeriodKind.GRANT, since=since, until=NOW + 86_400
        )
        spending = HeadSpending(
            burst_config.parse(burst()), a_config(budget), tuple, FakeAccounting()
        )
        *_, last = spending.measured(old, [], NOW)
        return [last.days, last.projects["imagenet"], {"vision": last.nobody}]

    assert kept(NOVEMBER) == [{"vision": {"2026-11-01": Decimal(2)}}] * 3
    assert kept(0.0) == [days] * 3


def test_a_job_without_a_key_is_of_its_accounts_project():
    config = a_config(
        a_budget(projects=("imagenet",)), account_projects={"language": "imagenet", "lab": "coco"}
    )
    jobs = [
        a_job(account="language"), a_job(account="language", wckey="coco"), a_job(account="lab"),
        a_job(account="vision", wckey="*ImageNet"),
    ]  # fmt: skip
    projects = [item.project for item in allocations(jobs, config, NOW)]
    assert projects == ["imagenet", "", "", "imagenet"]


def test_too_much_for_sacct_is_told():
    with pytest.raises(SlurmUnreachable, match="a day of attempts"):
        list(source(accounting=FakeAccounting(too_much=True)).measured(Memory(), [], NOW))


SUBMITTED = NOW - 7200
OPEN = {
    "JobIDRaw": "7", "Account": "vision", "Submit": str(int(SUBMITTED)),
    "Start": str(int(NOW) - 3600), "End": "Unknown", "NodeList": "rack-002",
    "AllocTRES": "billing=2000",
}  # fmt: skip


def gap_costs(*jobs, row=OPEN, **changes):
    """Return what an hour costs whose attempt has no end in slurmdbd."""
    memory = Memory(measured_from=NOW - 3600, measured_until=NOW - 3600)
    spending = source(accounting=FakeAccounting(row, **changes))
    *_, last = spending.measured(memory, jobs, NOW)
    return last.days.get("vision", {}).get("2026-11-26", 0)


def test_an_attempt_without_an_end_runs_while_slurmctld_has_its_job():
    for states in ({"RUNNING"}, {"SUSPENDED"}, {"RUNNING", "CONFIGURING"}):
        assert gap_costs(a_job(states=frozenset(states), submitted=SUBMITTED)) == 2
    assert gap_costs(a_job(submitted=SUBMITTED, begin=NOW - 60)) == 2, "a boot moves its begin"
    assert gap_costs(a_job(submitted=SUBMITTED - 60)) == 2, "a resize makes a later row"
    assert gap_costs(a_job()) == 2, "a record without the time of submission decides nothing"


def test_a_runaway_job_costs_nothing_after_an_outage():
    assert gap_costs() == 0
    assert gap_costs(a_job(8)) == 0
    assert gap_costs(a_waiting_job(7, submitted=SUBMITTED)) == 0


def test_an_attempt_ends_as_slurmctld_says_before_slurmdbd_has_its_end():
    ended = a_job(states=frozenset({"COMPLETED"}), end=NOW - 1800, submitted=SUBMITTED)
    assert gap_costs(ended, settled=False) == 1


def test_an_earlier_attempt_without_an_end_ended_before_its_job_was_requeued():
    for job in (a_job(submitted=NOW - 1800), a_waiting_job(7, submitted=NOW - 1800)):
        assert gap_costs(job) == 1
    late = OPEN | {"Start": str(int(NOW) - 900)}
    assert gap_costs(a_job(submitted=NOW - 1800), row=late) == 0


def test_no_job_loses_its_money_while_slurmdbd_may_not_have_its_end():
    with pytest.raises(SlurmUnreachable, match="job 7 as running"):
        gap_costs(settled=False)


def test_a_job_that_began_after_slurmctld_was_read_is_no_runaway():
    assert gap_costs(row=OPEN | {"Start": str(int(NOW))}, settled=False) == 0


def test_slurmctld_is_asked_for_rows_on_their_way_once_and_before_sacct():
    accounting = FakeAccounting()
    known = Memory(measured_from=NOVEMBER, measured_until=NOW - 3 * 86_400)
    *_, last = source(accounting=accounting).measured(known, [], NOW)
    assert accounting.asked == ["sdiag", "sacct", "sacct", "sacct"]
    list(source(accounting=accounting).measured(last, [], NOW + 60))
    assert len(accounting.asked) == 4, "a minute needs neither"
