"""The account that an instance's cost belongs to: boot, work, idle time, shared nodes, racks."""

from dataclasses import replace
from decimal import Decimal

from slurmplugins.budgets.memory import Memory, from_json, to_json
from slurmplugins.budgets.meter import Allocation, InstanceTime, measure, rates
from tests.fakes.budgets import NOVEMBER, NOW

HOUR = 3600.0
ONE = Decimal(1)


def instance(begin: float = 0, end: float = 4, usd: str = "1", **changes) -> InstanceTime:
    """Return the instance of gpu-001; times are hours after NOW."""
    return InstanceTime(
        "i-1", "gpu-001", NOW + begin * HOUR, NOW + end * HOUR, Decimal(usd), **changes
    )


def attempt(account: str, begin: float, end: float, usd: str = "1", nodes=("gpu-001",)):
    return Allocation(account, nodes, NOW + begin * HOUR, NOW + end * HOUR, Decimal(usd))


def spent(memory: Memory) -> dict[str, Decimal]:
    return {name: sum(days.values()) for name, days in memory.days.items()}


def measured(instances, attempts, until: float = 4, memory: Memory | None = None, since: float = 0):
    return measure(memory or Memory(), instances, attempts, NOW + since * HOUR, NOW + until * HOUR)


def test_boot_is_the_first_jobs_and_idle_time_the_last_jobs():
    attempts = [attempt("vision", 1, 2), attempt("language", 2.5, 3)]
    memory = measured([instance()], attempts)
    # One hour of boot, one of work, half an hour idle; then work and the last hour.
    assert spent(memory) == {"vision": Decimal("2.5"), "language": Decimal("1.5")}
    assert memory.unclaimed == {}


def test_the_price_is_that_of_the_purchase_and_not_slurms_weight():
    memory = measured([instance(usd="3.5")], [attempt("vision", 0, 4, usd="1")])
    assert spent(memory) == {"vision": Decimal(14)}


def test_boot_without_a_job_waits_for_its_first_job():
    booting = measured([instance()], [], until=1)
    assert booting.unclaimed == {"i-1": ONE}
    assert spent(booting) == {}
    memory = measured([instance()], [attempt("vision", 1, 4)], memory=booting, since=1)
    assert spent(memory) == {"vision": Decimal(4)}


def test_an_instance_that_no_job_had_is_nobodys():
    memory = measured([instance(end=2)], [])
    assert sum(memory.nobody.values()) == Decimal(2)
    assert memory.unclaimed == {}


def test_idle_time_of_a_static_node_is_nobodys():
    memory = measured([instance(is_static=True)], [attempt("vision", 0, 1)])
    assert spent(memory) == {"vision": ONE}
    assert sum(memory.nobody.values()) == Decimal(3)


def test_jobs_on_one_node_divide_it_by_their_billing_and_lose_no_part_of_a_dollar():
    attempts = [
        attempt("a", 0, 1, usd="0.1"),
        attempt("b", 0, 1, usd="0.2"),
        attempt("c", 0, 1, "0"),
    ]
    memory = measured([instance(end=1)], attempts, until=1)
    assert sum(spent(memory).values()) == ONE
    assert round(spent(memory)["b"], 2) == Decimal("0.67")


def test_a_node_without_instance_costs_what_slurm_bills():
    memory = measured([], [attempt("vision", 0, 2, usd="3", nodes=("rack-1", "rack-2"))])
    assert spent(memory) == {"vision": Decimal(6)}


def test_a_job_on_both_pays_the_instance_once():
    both = attempt("vision", 0, 4, usd="2", nodes=("gpu-001", "rack-1"))
    memory = measured([instance(usd="5")], [both])
    assert spent(memory) == {"vision": Decimal(20 + 4)}


def test_a_job_pays_nothing_for_a_node_after_its_instance_has_ended():
    # Slurm ends the job of a lost instance later: after an outage of the head, by hours.
    lost, begun_after = attempt("vision", 0, 4, usd="3"), attempt("language", 2, 3, usd="3")
    memory = measured([instance(end=1)], [lost, begun_after])
    assert spent(memory) == {"vision": ONE, "language": Decimal(3)}


def test_each_day_has_its_own_sum():
    memory = measured([instance(end=24)], [attempt("vision", 0, 24)], until=24)
    assert memory.days["vision"] == {"2026-11-26": Decimal(12), "2026-11-27": Decimal(12)}


def test_a_projects_jobs_carry_its_boot_and_idle_time_and_others_none():
    attempts = [
        replace(attempt("vision", 1, 2), project="imagenet"),
        attempt("vision", 3, 3.5),
        replace(attempt("language", 3.5, 3.75), project="imagenet"),
    ]
    memory = measured([instance()], attempts)
    # Boot and work of the first, its idle hour; the last job's quarter and the tail after it.
    days = {"vision": {"2026-11-26": Decimal(3)}, "language": {"2026-11-26": Decimal("0.5")}}
    assert memory.projects == {"imagenet": days}
    assert spent(memory) == {"vision": Decimal("3.5"), "language": Decimal("0.5")}
    assert from_json(to_json(memory)) == memory


def test_measuring_in_parts_gives_the_same_sum():
    attempts = [attempt("vision", 0.3, 1.7), attempt("language", 2, 2.2)]
    whole = measured([instance()], attempts)
    parts = Memory()
    for step in range(8):
        since, until = step / 2, (step + 1) / 2
        begun = [item for item in attempts if item.begin < NOW + until * HOUR]
        parts = measured([instance()], begun, until, parts, since)
    assert spent(parts) == spent(whole)


def test_a_rate_is_the_price_of_the_purchase_where_it_is_known():
    attempts = [
        attempt("a", 0, 4, usd="1"),
        attempt("b", 0, 4, usd="3"),
        attempt("c", 0, 4, "2", ("r",)),
    ]
    assert rates([instance(usd="8")], attempts, NOW + HOUR) == {
        0: Decimal(2),
        1: Decimal(6),
        2: Decimal(2),
    }


def test_a_file_of_an_earlier_head_is_read():
    """Go on with what was spent before an update."""
    new = {"closed_until", "projects", "last_project", "held_jobs"}
    memory = measured([instance()], [attempt("vision", 1, 2)], until=3)
    earlier = {key: value for key, value in to_json(memory).items() if key not in new}
    assert from_json(earlier).days == memory.days


def test_the_memory_survives_its_file():
    memory = measured([instance()], [attempt("vision", 1, 2)], until=3)
    assert memory.measured_from == NOW > NOVEMBER
    assert from_json({**to_json(memory)}) == memory
