"""The local cloud's invoice, against amounts derived by hand.

Spot g5.xlarge costs 0.36 US dollars an hour here, so a second costs 0.0001.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from toolkit.local.billing import invoice
from toolkit.local.billing.invoice import Granularity
from toolkit.local.billing.usage_log import Kind, UsageEvent, UsageLog

T0 = int(datetime(2026, 11, 21, 10, tzinfo=UTC).timestamp())
HOUR = 3600
INTERRUPTED = "Server.SpotInstanceTermination"


class Prices:
    """Spot at 0.36 an hour, after its `change` at 0.72; on demand at 1.00; storage at 0.08."""

    def __init__(self, change=T0 + 100 * HOUR) -> None:
        self.change = change

    def list_price(self, event):
        return Decimal("1.00") if event.kind is Kind.INSTANCE else Decimal("0.08")

    def price(self, event, at):
        if event.market != "spot":
            return self.list_price(event)
        return Decimal("0.36") if at < self.change else Decimal("0.72")


def instance(*states, market="spot", name="i-1"):
    """Return events of an instance from (seconds, state, EC2's reason)."""
    return [
        UsageEvent(
            T0 + at, name, Kind.INSTANCE, state, "us-east-1", "us-east-1a", "g5.xlarge", market,
            reason="".join(reason), tags={"toolkit:cluster": "demo"},
        )
        for at, state, *reason in states
    ]  # fmt: skip


def volume(*sizes):
    return [
        UsageEvent(
            T0 + at, "vol-1", Kind.VOLUME, "available" if gib else "deleted", "us-east-1",
            "us-east-1a", "gp3", gib=gib,
        )
        for at, gib in sizes
    ]  # fmt: skip


def bill(events, *, prices=None, since=0, until=T0 + 50 * HOUR, **more):
    return invoice.make(events, prices or Prices(), since=since, until=until, **more)


def total(events, **more):
    return bill(events, **more).total


def test_an_instance_is_billed_by_the_second_from_running_to_shutting_down():
    # 940 s x 0.0001
    life = instance((0, "pending"), (60, "running"), (1000, "shutting-down"), (1100, "terminated"))
    assert total(life) == Decimal("0.094")


def test_a_minute_is_the_least():
    life = instance((0, "pending"), (10, "running"), (12, "shutting-down"), (15, "terminated"))
    assert total(life) == Decimal("0.006")


def test_an_instance_that_never_ran_costs_nothing():
    life = instance((0, "pending"), (200, "shutting-down"), (201, "terminated"))
    assert bill(life).lines == ()


def test_each_start_has_its_own_minimum_and_stopped_time_is_free():
    # 3600 s, and 60 s for the second run of 5 s, at 1.00 an hour.
    life = instance(
        (0, "pending"), (0, "running"), (3600, "stopping"), (3700, "stopped"),
        (9000, "pending"), (9010, "running"), (9015, "shutting-down"), (9020, "terminated"),
        market="on-demand",
    )  # fmt: skip
    lines = bill(life).lines
    assert sum(line.seconds for line in lines) == 3660
    assert bill(life).total == Decimal("1.0166666667")


@pytest.mark.parametrize(
    ("end", "usd"), [(3599, "0"), (3600, "0.36"), (3700, "0.37")], ids=["within", "at", "after"]
)
def test_an_interruption_in_the_first_hour_is_free(end, usd):
    life = instance((0, "running"), (end, "shutting-down", INTERRUPTED), (end + 3, "terminated"))
    assert total(life) == Decimal(usd)
    assert sum(line.seconds for line in bill(life).lines) == end


def test_what_its_owner_ends_in_the_first_hour_is_charged():
    life = instance((0, "running"), (600, "shutting-down", "Client.UserInitiatedShutdown"))
    assert total(life) == Decimal("0.06")


def test_a_new_spot_price_begins_with_the_next_hour_of_the_instance():
    # Running from 10:20. The price doubles at 10:40. 3600 s at the old one, 600 s at the new one.
    life = instance((1200, "running"), (1200 + 4200, "shutting-down"))
    assert total(life, prices=Prices(change=T0 + 2400)) == Decimal("0.36") + Decimal("0.12")


def test_lines_begin_with_utcs_hours_and_the_instances_hours():
    life = instance((1200, "running"), (1200 + 4200, "shutting-down"))
    lines = bill(life, prices=Prices(change=T0 + 2400)).lines
    assert [(line.start - T0, line.end - T0, line.rate) for line in lines] == [
        (1200, 3600, Decimal("0.36")),
        (3600, 4800, Decimal("0.36")),
        (4800, 5400, Decimal("0.72")),
    ]


def test_days_sum_to_the_same_as_hours():
    life = instance((1200, "running"), (1200 + 40 * HOUR, "shutting-down"), market="on-demand")
    daily = bill(life, granularity=Granularity.DAILY)
    assert len(daily.lines) == 3
    assert daily.total == total(life) == 40


def test_a_window_cuts_an_instance_that_still_runs():
    life = instance((0, "running"))
    assert total(life, since=T0 + 100, until=T0 + 300) == Decimal("0.02")
    first, second = total(life, until=T0 + 5000), total(life, since=T0 + 5000, until=T0 + 9000)
    assert first + second == total(life, until=T0 + 9000)


def test_the_minimum_is_not_billed_before_it_has_passed():
    life = instance((0, "running"))
    assert total(life, until=T0 + 10) == Decimal("0.001")


def test_a_volume_is_billed_by_gb_and_part_of_its_month():
    # November: 30 days. 100 GB for 3 days, then 200 GB for 3 days, of 0.08 a GB-month.
    day = 24 * HOUR
    life = volume((0, 100), (3 * day, 200), (6 * day, 0))
    lines = bill(life, until=T0 + 10 * day, granularity=Granularity.DAILY)
    assert round(lines.total, 8) == Decimal("2.40000000")
    assert round(sum(line.quantity for line in lines.lines), 8) == 30


def test_the_price_of_a_volumes_second_depends_on_its_month():
    begin = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()) - T0
    february = volume((begin, 28), (begin + 24 * HOUR, 0))
    assert round(total(february), 8) == Decimal("0.08000000")


def test_a_log_gives_back_what_was_written_and_skips_a_line_cut_short(tmp_path):
    log, events = UsageLog(tmp_path / "state"), instance((0, "pending"), (5, "running"))
    log.append(events)
    with log.path.open("ab") as file:
        file.write(b'{"at": 17, "kin')
    log.append(volume((9, 8)))
    assert log.read() == [*events, *volume((9, 8))]


def test_what_runs_ends_with_its_daemon_and_only_once(tmp_path):
    log = UsageLog(tmp_path)
    log.append([*instance((0, "running")), *instance((0, "running"), (9, "stopping"), name="i-2")])
    log.append([*instance((0, "running"), (9, "shutting-down"), name="i-3"), *volume((0, 8))])
    log.end_all(T0 + 100)
    log.end_all(T0 + 200)
    ends = [(event.resource_id, event.state, event.at - T0) for event in log.read()[6:]]
    assert ends == [
        ("i-1", "terminated", 100),
        ("i-2", "terminated", 100),
        ("vol-1", "deleted", 100),
    ]
    assert total(log.read()) == Decimal("0.01") + Decimal("0.006") * 2 + Decimal("0.0000246914")
