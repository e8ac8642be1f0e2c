"""Offerings come in the order of the launch, each at its price for the job's part of the nodes."""

from dataclasses import replace
from decimal import Decimal

import pytest

from tests.unit.quote.samples import NOW, market, request
from tests.unit.render.render_samples import CPU_POOL, GPU_POOL
from toolkit.accounting.settings import contracts
from toolkit.quote import offers
from toolkit.quote.errors import BadRequest, NothingFits, NoTimeLimit, UnknownPartition

LARGE = {
    "count": 2,
    "shape": {"cpus": 48, "memory_gib": 192, "gpus": 4, "gpu": "a10g"},
    "offerings": [{"type": "g5.12xlarge", "capacity": "on-demand"}],
}


def of(*options, **changed):
    place = market(**changed)
    return offers.offers(offers.resolved(request(*options), place.config), place)


def keys(found):
    return [(offer.lifecycle, offer.zone) for offer in found]


def test_each_offering_has_its_price_of_now():
    found = of()
    assert keys(found) == [
        ("spot", "us-east-1a"),
        ("spot", "us-east-1b"),
        ("on-demand", "us-east-1a"),
        ("on-demand", "us-east-1b"),
    ]
    assert [offer.usd_per_hour for offer in found[:3]] == [
        Decimal("0.4"),
        Decimal("0.5"),
        Decimal("1.006"),
    ]
    assert found[0].usd(8 * 3600) == Decimal("3.2000")
    assert found[0].source == "history"


@pytest.mark.parametrize(
    ("policy", "lifecycles"),
    [
        ("spot-only", ["spot"] * 2),
        ("on-demand-only", ["on-demand"] * 2),
        ("cheapest-first", ["spot", "spot", "on-demand", "on-demand"]),
    ],
)
def test_a_policy_leaves_out_what_it_never_buys(policy, lifecycles):
    partitions = {"spot": {"pools": ["gpu"], "policy": policy, "default": True, "max_time": "600"}}
    assert [lifecycle for lifecycle, _ in keys(of(partitions=partitions))] == lifecycles


def test_on_demand_after_a_wait_says_so():
    policy = {"pools": ["gpu"], "policy": "on-demand-after 10m", "default": True}
    found = of(partitions={"spot": policy})
    assert [offer.after_seconds for offer in found] == [0, 0, 600, 600]


def test_a_job_pays_for_its_largest_part_of_a_node():
    pools = {"gpu": LARGE}
    partitions = {"spot": {"pools": ["gpu"], "default": True}}
    changed = {"pools": pools, "partitions": partitions}
    whole = Decimal("5.672")
    assert of("--gpus=1", **changed)[0].share == 0.25  # with a quarter of CPUs and memory
    assert of("--gpus=1", **changed)[0].usd_per_hour == whole / 4
    assert of("--gpus=1", "--cpus-per-task=24", **changed)[0].share == 0.5
    assert of("--gpus=1", "--mem=0", **changed)[0].share == 1
    assert of("--gpus=1", "--exclusive", **changed)[0].usd_per_hour == whole
    assert (of("--gpus=8", **changed)[0].nodes, of("--gpus=8", **changed)[0].share) == (2, 1)


def test_a_stated_number_of_cpus_replaces_the_partitions_default_for_a_gpu():
    partitions = {"spot": {"pools": ["gpu"], "default": True}}
    found = of("--gpus=1", "--cpus-per-task=1", "--mem=1G", pools={"gpu": LARGE},
               partitions=partitions)  # fmt: skip
    assert found[0].share == 0.25  # the GPU's part: its CPUs are fewer


def test_gpus_of_each_node_and_each_task_are_added_up():
    changed = {"pools": {"gpu": LARGE}, "partitions": {"spot": {"pools": ["gpu"], "default": True}}}
    assert of("--gpus=0", "--nodes=2", "--gpus-per-node=2", **changed)[0].gpus == 4
    assert of("--gpus=0", "--ntasks=3", "--gpus-per-task=1", **changed)[0].gpus == 3


def test_pools_come_by_their_weight():
    found = of("--partition=any", "--gpus=0", "--cpus-per-task=4")
    assert [offer.pool for offer in found] == ["gpu"] * 4 + ["cpu"]


def test_a_pool_that_does_not_fit_is_left_out():
    found = of("--partition=any", "--gpus=0", "--cpus-per-task=8")
    assert {offer.pool for offer in found} == {"cpu"}
    assert found[0].usd_per_hour == Decimal("0.714") / 2


def test_a_capacity_block_costs_what_was_paid_for_it():
    block = {"pool": "gpu", "count": 2, "usd_total": "480",
             "since": "2026-09-20", "until": "2026-09-30"}  # fmt: skip
    place = market(prices={"capacity_blocks": [block]})
    paid = replace(place, book=replace(place.book, contracts=contracts(place.config)))
    found = offers.offers(offers.resolved(request(), paid.config), paid)
    assert [(offer.usd_per_hour, offer.source) for offer in found[2:]] == [
        (Decimal(1), "capacity-block")
    ] * 2


CLASSES = {"release": {"partitions": ["any", "spot"]}, "sweep": {}}


@pytest.mark.parametrize(
    ("options", "partition"),
    [
        (("--qos=release",), "any"),
        (("--qos=Release",), "any"),
        (("--qos=sweep",), "spot"),
        (("--qos=release", "--partition=spot"), "spot"),
    ],
)
def test_a_job_of_a_class_is_quoted_in_the_partition_that_sbatch_gives_it(options, partition):
    assert {offer.partition for offer in of(*options, classes=CLASSES)} == {partition}


def test_without_the_script_at_submit_a_class_chooses_no_partition():
    slurm = {"version": "24.11", "submit_line": False}
    found = of("--qos=release", classes=CLASSES, slurm=slurm)
    assert {offer.partition for offer in found} == {"spot"}


def test_all_partitions_of_a_list_are_quoted():
    assert {offer.partition for offer in of("--partition=spot,any")} == {"spot", "any"}


def test_a_job_that_fits_nowhere_is_refused_in_slurms_words():
    for options in (("--gpus=64",), ("--constraint=h100",), ("--gpus=h100:1",), ("--mem=1T",)):
        with pytest.raises(NothingFits, match="requested node configuration is not available"):
            of(*options)


def test_an_unknown_partition_is_named_with_the_nearest():
    with pytest.raises(UnknownPartition) as caught:
        of("--partition=spott")
    assert caught.value.message == "invalid partition specified: spott"
    assert caught.value.next_step == "did you mean spot?"


def test_without_a_default_partition_one_must_be_given():
    with pytest.raises(UnknownPartition, match="no partition specified"):
        of(partitions={"spot": {"pools": ["gpu"]}})


def test_a_job_without_a_limit_has_its_partitions():
    place = market()
    text = "#!/bin/bash\n"
    assert offers.resolved(request(text=text), place.config).time_limit == 86_400
    with pytest.raises(NoTimeLimit, match="no time limit"):
        offers.resolved(request("--partition=any", text=text), place.config)
    with pytest.raises(NoTimeLimit):
        offers.resolved(request("--time=UNLIMITED"), place.config)


def test_a_limit_above_the_partitions_is_refused():
    with pytest.raises(BadRequest, match="requested time limit is invalid"):
        of("--time=2-00:00:00")


def test_an_unknown_price_is_no_price_of_zero():
    unknown = {**CPU_POOL, "offerings": [{"type": "x9.large", "capacity": "on-demand"}]}
    found = of("--partition=any", "--gpus=0", "--cpus-per-task=8",
               pools={"gpu": GPU_POOL, "cpu": unknown})  # fmt: skip
    assert not found[0].known
    assert offers.cheapest(found, spot=False) is None


def test_spot_without_a_history_is_quoted_at_the_price_on_demand_and_says_so():
    place = market(changes=())
    found = offers.offers(offers.resolved(request(), place.config), place)
    assert (found[0].usd_per_hour, found[0].source) == (Decimal("1.006"), "list-for-spot")
    assert place.now == NOW
