"""The decision about one waiting job, with its words."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.config.governor import DataRule
from slurmplugins.governor.decide import Decision, Reason, decide
from slurmplugins.governor.words import note, sentence
from slurmplugins.model.queued_job import NodeGroup, QueuedJob
from tests.fakes.governor import CLOUD, CONFIG, NOW, RACK, RULE, a_job, facts

GPUS = NodeGroup(4, 8, 32_000, {"h100": 2}, frozenset({"nvme"}), "12.00")


def decision(job: QueuedJob, rule=RULE, **changes: object) -> Decision:
    return decide(job, rule, facts(**changes), CONFIG)


def test_a_job_that_has_waited_long_enough_may_burst():
    made = decision(a_job())
    assert (made.bursts, made.reason) == (True, Reason.AGE)
    # 600 s of boot, an hour of work and 300 s until the instance ends, at 1.20 USD an hour.
    assert made.cost is not None
    assert (made.cost.nodes, made.cost.usd) == (1, Decimal("1.50"))
    assert sentence(made) == (
        "may burst: it has waited 1 h 0 m for racks; cloud costs at most 1.50 USD"
    )


def test_a_job_stays_until_it_has_waited_long_enough():
    made = decision(a_job(submitted_at=NOW - 200, eligible_at=NOW - 200))
    assert (made.bursts, made.reason) == (False, Reason.YOUNG)
    assert sentence(made) == "stays: it has waited 3 m of 30 m; cloud would cost up to 1.50 USD"


def test_a_job_stays_if_backfill_expects_racks_soon():
    made = decision(a_job(start_at=NOW + 720))
    assert (made.bursts, made.reason) == (False, Reason.RACKS_SOON)
    assert sentence(made) == "stays: racks expected in 12 m; cloud would cost up to 1.50 USD"


def test_racks_far_ahead_or_an_expectation_of_long_ago_keep_nobody():
    assert decision(a_job(start_at=NOW + 7200)).bursts
    assert decision(a_job(start_at=NOW - 7200)).bursts


def test_a_job_that_bursts_already_keeps_the_cloud_although_its_start_is_near():
    """Ignore the expected start, which may be the cloud's own."""
    job = a_job(start_at=NOW + 30, partitions=("rack", "cloud"))
    assert decision(job, bursts_already=True).bursts


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"held": True}, Reason.HELD),
        ({"priority": 0}, Reason.HELD),
        ({"eligible_at": None}, Reason.NOT_ELIGIBLE),
        ({"eligible_at": NOW + 60}, Reason.NOT_ELIGIBLE),
        ({"reason": "AssocGrpGRES"}, Reason.LIMITS),
        ({"reason": "QOSMaxJobsPerUserLimit"}, Reason.LIMITS),
        ({"reason": "MaxCpuPerAccount"}, Reason.LIMITS),
        ({"reason": "AccountingPolicy"}, Reason.LIMITS),
        ({"het_job": True}, Reason.HET_JOB),
        ({"batch": False}, Reason.INTERACTIVE),
        ({"may_requeue": False}, Reason.NO_REQUEUE),
        ({"required_nodes": "rack-1"}, Reason.NODELIST),
        ({"reservation": "course"}, Reason.RESERVATION),
        ({"licenses": "matlab:1"}, Reason.LICENSES),
        ({"constraint": "a|b"}, Reason.CONSTRAINT),
        ({"account": "language"}, Reason.NO_BUDGET),
        ({"time_limit": None}, Reason.NO_TIME_LIMIT),
        ({"deadline": NOW + 3900}, Reason.CLOUD_LATE),
    ],
)
def test_what_a_job_is_may_keep_it_on_racks(changes: dict[str, object], reason: Reason):
    made = decision(a_job(**changes))
    assert (made.bursts, made.reason) == (False, reason)
    assert sentence(made).startswith("stays: ")
    assert reason.value in note(made) or reason is Reason.NOT_ELIGIBLE


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"cloud_problem": "EC2 is away"}, Reason.CLOUD_PROBLEM, "EC2 is away"),
        ({"cloud": replace(CLOUD, up=False)}, Reason.CLOUD_PROBLEM, "is not up"),
        ({"cloud": replace(CLOUD, tier=2)}, Reason.CLOUD_FIRST, "PriorityTier"),
        ({"cloud": replace(CLOUD, factor=2)}, Reason.CLOUD_FIRST, "PriorityTier"),
        ({"cloud": replace(CLOUD, groups=())}, Reason.CLOUD_LACKS, "no node of cloud"),
        ({"cloud": replace(CLOUD, allowed_accounts=("x",))}, Reason.CLOUD_LACKS, "admit"),
        ({"cloud": replace(CLOUD, denied_qos=("normal",))}, Reason.CLOUD_LACKS, "admit"),
        ({"cloud": replace(CLOUD, for_groups=True)}, Reason.CLOUD_LACKS, "admit"),
        ({"cloud": replace(CLOUD, max_time=60.0)}, Reason.CLOUD_TIME_LIMIT, "time limit"),
        ({"refusal": "not now"}, Reason.SLURM_REFUSED, "not now"),
        ({"refused_by_cloud": True}, Reason.CLOUD_REFUSED, "tried again"),
        ({"undone": True}, Reason.UNDONE, "somebody"),
        ({"remaining_usd": Decimal("1.49")}, Reason.OVER_BUDGET, "1.49 USD left"),
    ],
)
def test_what_the_cloud_is_may_keep_a_job_on_racks(changes, reason: Reason, words: str):
    made = decision(a_job(), **changes)
    assert (made.bursts, made.reason) == (False, reason)
    assert words in sentence(made)


def test_a_price_that_is_not_known_is_not_guessed():
    unknown = replace(CLOUD.groups[0], usd_per_hour="")
    made = decision(a_job(), cloud=replace(CLOUD, groups=(*CLOUD.groups, unknown)))
    assert (made.bursts, made.reason, made.cost) == (False, Reason.PRICE_UNKNOWN, None)


def test_the_dearest_nodes_that_fit_count():
    """Slurm may take any of them."""
    dear = replace(CLOUD.groups[0], cpus=4, usd_per_hour="4.00")
    made = decision(a_job(), cloud=replace(CLOUD, groups=(*CLOUD.groups, dear)))
    assert made.cost is not None
    assert (made.cost.nodes, made.cost.usd_per_hour) == (2, Decimal("8.00"))


@pytest.mark.parametrize(("most", "nodes", "usd"), [(2, 2, 240), (4, 4, 480), (99, 4, 480)])
def test_a_range_of_nodes_costs_its_largest_number(most: int, nodes: int, usd: int):
    cost = decision(a_job(nodes=2, most_nodes=most)).cost
    assert cost is not None
    assert (cost.nodes, cost.usd_per_hour) == (nodes, Decimal(usd) / 100)


def test_nodes_of_two_pools_may_be_mixed_and_the_dearest_count():
    cloud = replace(CLOUD, groups=(*CLOUD.groups, NodeGroup(2, 16, 64_000, usd_per_hour="10")))
    cost = decision(a_job(nodes=4), cloud=cloud).cost
    assert cost is not None
    assert (cost.nodes, cost.usd_per_hour) == (4, Decimal("22.40"))
    alone = decision(a_job(nodes=1), cloud=cloud).cost
    assert alone is not None
    assert (alone.nodes, alone.usd_per_hour) == (1, Decimal(10))
    unknown = replace(cloud, groups=(*CLOUD.groups, NodeGroup(2, 16, 64_000, usd_per_hour="")))
    assert decision(a_job(nodes=4), cloud=unknown).reason is Reason.PRICE_UNKNOWN


def test_a_gres_that_no_pool_has_keeps_a_job_on_racks():
    made = decision(a_job(other_gres=("fpga",)))
    assert (made.bursts, made.reason) == (False, Reason.CLOUD_LACKS)


def test_a_gpu_that_racks_lack_bursts_at_once():
    job = a_job(gpus=2, gpu="h100", submitted_at=NOW, eligible_at=NOW)
    made = decision(job, cloud=replace(CLOUD, groups=(GPUS,)))
    assert (made.bursts, made.reason) == (True, Reason.RACKS_LACK)
    assert "no node of rack can ever run it" in sentence(made)


def test_a_job_too_big_or_too_long_for_racks_bursts_at_once():
    assert decision(a_job(nodes=3, eligible_at=NOW)).reason is Reason.RACKS_LACK
    short = replace(RACK, max_time=60.0)
    assert decision(a_job(eligible_at=NOW), rack=short).reason is Reason.RACKS_LACK


def test_a_job_too_big_for_the_cloud_too_stays():
    assert decision(a_job(nodes=5)).reason is Reason.CLOUD_LACKS


def test_features_are_those_of_the_cloud_nodes():
    job = a_job(constraint="nvme", features=("nvme",))
    assert decision(job).reason is Reason.CLOUD_LACKS
    assert decision(job, cloud=replace(CLOUD, groups=(GPUS,))).bursts


def test_a_qos_has_a_wait_of_its_own_and_the_others_stay():
    rule = replace(RULE, qos={"urgent": 300.0})
    young = a_job(eligible_at=NOW - 400, submitted_at=NOW - 400)
    assert decision(replace(young, qos="urgent"), rule).bursts
    assert decision(young, rule).reason is Reason.QOS


def test_a_job_that_racks_would_finish_after_its_deadline_bursts_at_once():
    job = a_job(deadline=NOW + 5400, start_at=NOW + 3600, eligible_at=NOW, submitted_at=NOW)
    assert decision(job).reason is Reason.DEADLINE
    assert decision(job, replace(RULE, deadline=False)).reason is Reason.YOUNG
    assert decision(replace(job, start_at=NOW + 1000)).reason is Reason.YOUNG


def test_data_on_site_costs_dollars_and_hours():
    rule = replace(RULE, data=DataRule(True, mbit_per_second=800.0, usd_per_gb=Decimal("0.02")))
    made = decision(a_job(comment="run 3; site-data=500G"), rule)
    # 500 GB are 4,000,000 megabits.
    assert made.data_seconds == 5000.0
    assert made.cost is not None
    assert made.cost.usd == Decimal("11.50")
    soon = decision(a_job(comment="site-data=500G", start_at=NOW + 5400), rule)
    assert soon.reason is Reason.RACKS_SOON
    assert sentence(soon) == (
        "stays: racks expected in 1 h 30 m; cloud would cost up to 11.50 USD, its data 1 h 23 m"
        " to move"
    )


def test_data_of_unknown_size_stays_and_data_in_s3_costs_nothing():
    rule = replace(RULE, data=DataRule(on_site=True))
    assert decision(a_job(), rule).reason is Reason.DATA_UNKNOWN
    made = decision(a_job(comment="s3-data"), rule)
    assert made.cost is not None
    assert made.cost.usd == Decimal("1.50")


def test_the_tasks_of_an_array_cost_together():
    made = decision(a_job(tasks=10))
    assert made.cost is not None
    assert made.cost.usd == Decimal("15.00")


def test_a_note_has_no_figure_that_changes_from_pass_to_pass():
    first = decision(a_job(), remaining_usd=Decimal(1))
    later = decision(a_job(eligible_at=NOW - 9000), remaining_usd=Decimal("0.5"))
    assert note(first) == note(later) != ""
    assert note(decision(a_job(start_at=NOW + 60))) == ""
