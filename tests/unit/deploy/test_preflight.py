"""The preflight's checks: each contradiction between cluster.yaml and the account."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.deploy.samples import ACCOUNT, example
from toolkit.config import parse
from toolkit.config.model import LoginNodes
from toolkit.deploy.preflight.checks import account_checks
from toolkit.deploy.preflight.facts import (
    AccountFacts,
    DefaultKey,
    InstanceType,
    RefusedLaunch,
    Reservation,
    Unanswered,
)
from toolkit.deploy.preflight.quotas import quota_of, quotas_of
from toolkit.deploy.preflight.rates import rate_checks
from toolkit.deploy.preflight.uses import uses

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
BLOCK = "cr-0a1b2c3d4e5f60718"
BUILDER, HEAD = "c7i.2xlarge", "m7i.xlarge"
FILE = f"""\
cluster: research
aws: {{region: us-east-1}}
network: {{cidr: 10.0.0.0/16, zones: {{us-east-1a: 10.0.0.0/20, us-east-1b: 10.0.16.0/20}}}}
images: {{builder_type: {BUILDER}}}
head: {{instance_type: {HEAD}}}
pools:
  gpu:
    count: 8
    shape: {{cpus: 4, memory_gib: 16, gpus: 1, gpu: a10g}}
    offerings:
      - {{type: g5.xlarge, capacity: spot}}
      - {{type: g5.xlarge, capacity: on-demand}}
  h100:
    count: 4
    shape: {{cpus: 192, memory_gib: 2048, gpus: 8, gpu: h100}}
    offerings:
      - {{type: p5.48xlarge, capacity: on-demand, zone: us-east-1a, reservation: {BLOCK}}}
    zones: [us-east-1a]
    placement_group: true
    efa: 32
partitions:
  gpu: {{pools: [gpu], default: true}}
  large: {{pools: [h100]}}
"""
CONFIG = parse(FILE)
TYPES = {
    HEAD: InstanceType(HEAD, 4, 16384),
    BUILDER: InstanceType(BUILDER, 8, 16384),
    "g5.xlarge": InstanceType("g5.xlarge", 4, 16384, 1, ("A10G",)),
    "p5.48xlarge": InstanceType(
        "p5.48xlarge",
        192,
        2048 * 1024,
        8,
        ("H100",),
        efa_interfaces=32,
        network_cards=32,
        first_card_has_efa=True,
    ),
}
RESERVATION = Reservation(BLOCK, "p5.48xlarge", "us-east-1a", "active", 4, 4)
FITTING = AccountFacts(
    account=ACCOUNT,
    caller=f"arn:aws:iam::{ACCOUNT}:user/ada",
    zones=frozenset(CONFIG.network.zones),
    types=TYPES,
    offered=frozenset((name, zone) for name in TYPES for zone in CONFIG.network.zones),
    quotas={quota.name: 2000.0 for quota in quotas_of(CONFIG)},
    reservations={BLOCK: RESERVATION},
    default_key=DefaultKey("alias/aws/ebs", of_customer=False),
)
OUTSIDE = "reservation-outside-group"


def found(facts, config=CONFIG):
    """Return severity, slug and place of each finding.

    The example's own warning is left out.
    """
    return {
        (str(item.severity), item.slug, ".".join(map(str, item.key_path)))
        for item in account_checks(config, facts, NOW)
        if item.slug != OUTSIDE
    }


def with_type(name, **changes):
    return replace(FITTING, types={**TYPES, name: replace(TYPES[name], **changes)})


def with_reservation(**changes):
    return replace(FITTING, reservations={BLOCK: replace(RESERVATION, **changes)})


def with_quota(name, value):
    return replace(FITTING, quotas={**FITTING.quotas, name: value})


def test_an_account_that_fits_has_no_finding():
    """Expect only the warning of a reservation outside of the pool's group."""
    assert found(FITTING) == set()


GPU = "pools.gpu.offerings.0.type"
H100 = "pools.h100.offerings.0.type"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            replace(FITTING, zones=frozenset({"us-east-1a"})),
            "no-such-zone network.zones.us-east-1b",
        ),
        (with_type("p5.48xlarge", vcpus=191), f"type-below-shape {H100}"),
        (with_type("p5.48xlarge", memory_mib=2047 * 1024), f"type-below-shape {H100}"),
        (with_type("p5.48xlarge", gpus=4), f"type-below-shape {H100}"),
        (with_type("p5.48xlarge", efa_interfaces=16), f"type-efa {H100}"),
        (with_type("p5.48xlarge", network_cards=31), f"type-efa {H100}"),
        (with_type("p5.48xlarge", first_card_has_efa=False), f"efa-first-card {H100}"),
        (with_type("p5.48xlarge", placement_strategies=frozenset()), f"type-placement {H100}"),
        (
            with_type(HEAD, architectures=frozenset({"arm64"})),
            "type-architecture head.instance_type",
        ),
        (
            with_type(BUILDER, usage_classes=frozenset({"spot"})),
            "type-lifecycle images.builder_type",
        ),
        (
            replace(FITTING, reservations={}),
            "no-such-reservation pools.h100.offerings.0.reservation",
        ),
        (replace(FITTING, base_image_problem="none"), "base-image-missing images.base"),
        (
            replace(FITTING, slurm_packages_problem="none"),
            "slurm-packages-missing slurm.packages",
        ),
        (replace(FITTING, builder_subnet_problem="none"), "no-builder-subnet images.subnet"),
    ],
)
def test_each_contradiction_is_an_error_at_its_key(facts, expected):
    """Report one error, at the key that contradicts the account."""
    slug, place = expected.split()
    assert found(facts) == {("error", slug, place)}


@pytest.mark.parametrize(
    ("changes", "slug", "severity"),
    [
        ({"instance_type": "p4d.24xlarge"}, "reservation-mismatch", "error"),
        ({"zone": "us-east-1b"}, "reservation-mismatch", "error"),
        ({"is_block": True}, "reservation-kind", "error"),
        ({"state": "cancelled"}, "reservation-over", "error"),
        ({"ends_at": NOW}, "reservation-over", "error"),
        ({"state": "scheduled"}, "reservation-waits", "warning"),
        ({"total": 3}, "reservation-small", "warning"),
        ({"placement_group": "arn:aws:ec2:…/theirs"}, "reservation-in-group", "error"),
    ],
)
def test_a_reservation_must_be_able_to_give_the_instances(changes, slug, severity):
    """Compare type, zone, kind, state, end, size and placement group."""
    place = "pools.h100.offerings.0.reservation"
    assert found(with_reservation(**changes)) == {(severity, slug, place)}


def test_a_reservation_that_ends_later_is_good():
    """Accept an end in the future."""
    assert found(with_reservation(ends_at=NOW + timedelta(seconds=1))) == set()


def test_a_reservation_outside_of_a_group_is_a_warning_only_with_a_placement_group():
    """Name the reservation whose instances may be far apart."""
    slugs = [item.slug for item in account_checks(CONFIG, FITTING, NOW)]
    assert slugs == [OUTSIDE]
    apart = parse(FILE.replace("    placement_group: true\n", ""))
    assert list(account_checks(apart, FITTING, NOW)) == []


def test_a_type_that_no_zone_offers_is_an_error_and_else_a_warning():
    """Accept one zone: the engine goes on to it."""
    one = frozenset(FITTING.offered - {("g5.xlarge", "us-east-1b")})
    second = "pools.gpu.offerings.1.type"
    assert found(replace(FITTING, offered=one)) == {
        ("warning", "type-not-in-zone", GPU),
        ("warning", "type-not-in-zone", second),
    }
    none = frozenset(item for item in FITTING.offered if item[0] != "g5.xlarge")
    assert found(replace(FITTING, offered=none)) == {
        ("error", "type-not-in-zone", GPU),
        ("error", "type-not-in-zone", second),
    }
    head = frozenset(FITTING.offered - {(HEAD, "us-east-1a")})
    assert found(replace(FITTING, offered=head)) == {
        ("error", "type-not-in-zone", "head.instance_type")
    }
    assert (
        found(replace(FITTING, offered=frozenset(FITTING.offered - {(BUILDER, "us-east-1a")})))
        == set()
    )


def test_an_unknown_type_is_one_error():
    """Say nothing of zones or quotas of a type that doesn't exist."""
    types = {name: one for name, one in TYPES.items() if name != HEAD}
    assert found(replace(FITTING, types=types)) == {("error", "no-such-type", "head.instance_type")}


def test_more_gpus_and_another_kind_are_warnings():
    """Warn of GPUs that no job gets, and of a wrong name."""
    facts = with_type("g5.xlarge", gpus=2, gpu_names=("T4",))
    slugs = {(severity, slug) for severity, slug, _ in found(facts)}
    assert slugs == {("warning", "type-above-shape"), ("warning", "gpu-kind")}
    assert found(with_type("p5.48xlarge", gpu_names=("H100 80GB",))) != set()
    assert found(with_type("p5.48xlarge", gpu_names=("NVIDIA H100",))) != set()


def test_a_quota_below_all_nodes_at_once_is_a_warning():
    """Count each pool's nodes, the head node and two builders."""
    standard = quota_of(HEAD, "on-demand").name
    assert found(with_quota(quota_of("g5.xlarge", "spot").name, 31.0)) == {
        ("warning", "quota-below-pools", "pools.gpu.count")
    }
    assert found(with_quota(quota_of("g5.xlarge", "spot").name, 32.0)) == set()
    assert found(with_quota(standard, 8.0)) == set(), "no pool has these types"


STATED = "aws: {{region: us-east-1, instance_rate: {{burst: 1000, per_second: {}}}}}"


@pytest.mark.parametrize(
    ("nodes", "per_second", "sentence"),
    [
        (1890, None, None),
        (1891, None, "a job of more than 1890 nodes is tried once, and held if the account has no"),
        (3670, 6, None),
        (3671, 6, "a job of more than 3670 nodes is held at once: aws.instance_rate (1000 at once"),
    ],
)
def test_a_pool_beyond_the_rate_of_instance_starts_is_a_warning(nodes, per_second, sentence):
    """Count 1,000 at once, and the rest for half of 900 s."""
    text = FILE.replace("count: 8", f"count: {nodes}")
    if per_second is not None:
        text = text.replace("aws: {region: us-east-1}", STATED.format(per_second))
    findings = list(rate_checks(parse(text)))
    assert [item.slug for item in findings] == ["rate-below-pool"] * (sentence is not None)
    assert all(item.message.startswith(sentence) for item in findings)


def test_a_fleet_does_not_draw_on_the_rate_of_instance_starts():
    """Give one lifecycle a second type: the pool's launches may be fleets."""
    text = FILE.replace("count: 8", "count: 4000")
    first = "      - {type: g5.xlarge, capacity: spot}\n"
    assert first in text
    assert list(rate_checks(parse(text)))
    assert not list(rate_checks(parse(text.replace(first, first + first.replace("g5.x", "g5.2x")))))


def test_a_reservation_is_no_part_of_a_fleet():
    """Reserve the second type."""
    text = FILE.replace("count: 8", "count: 4000")
    first = "      - {type: g5.xlarge, capacity: on-demand}\n"
    reserved = "g5.2xlarge, reservation: cr-0a1b2c3d, zone: us-east-1b"
    second = first.replace("g5.xlarge", reserved)
    assert first in text
    assert list(rate_checks(parse(text.replace(first, first + second))))


def test_a_quota_below_one_node_is_an_error_if_the_pool_has_nothing_else():
    """Warn where another offering of every partition still gives instances."""
    spot, demand = (quota_of("g5.xlarge", one).name for one in ("spot", "on-demand"))
    slug, second = "quota-below-one-instance", "pools.gpu.offerings.1.type"
    all_nodes = ("warning", "quota-below-pools", "pools.gpu.count")
    assert found(with_quota(spot, 3.0)) == {all_nodes, ("warning", slug, GPU)}
    neither = replace(FITTING, quotas={**FITTING.quotas, spot: 0.0, demand: 0.0})
    assert found(neither) == {all_nodes, ("error", slug, GPU), ("error", slug, second)}
    spot_only = parse(FILE.replace("default: true", "default: true, policy: spot-only"))
    assert ("error", slug, GPU) in found(with_quota(spot, 0.0), spot_only)
    assert found(with_quota(demand, 0.0), spot_only) == {("warning", slug, second)}


def test_a_quota_below_the_head_node_or_a_builder_is_an_error():
    """deploy would wait for an instance that EC2 refuses."""
    standard = quota_of(HEAD, "on-demand").name
    slug = "quota-below-one-instance"
    assert found(with_quota(standard, 7.0)) == {("error", slug, "images.builder_type")}
    assert len(found(with_quota(standard, 3.0))) == 2


@pytest.mark.parametrize(
    ("name", "lifecycle", "code"),
    [
        ("c7i.large", "on-demand", "L-1216C47A"),
        ("im4gn.large", "spot", "L-34B43A08"),
        ("gr6.4xlarge", "on-demand", "L-DB2E81BA"),
        ("p4d.24xlarge", "spot", "L-7212CCBC"),
        ("p5en.48xlarge", "spot", "L-C4BD4855"),
        ("p6-b200.48xlarge", "on-demand", "L-417A185B"),
        ("dl2q.24xlarge", "on-demand", "L-6E869C2A"),
        ("hpc7a.96xlarge", "on-demand", "L-F7808C92"),
        ("u7i-12tb.224xlarge", "on-demand", "L-43DA4232"),
        ("trn1.32xlarge", "spot", "L-6B0D517C"),
        ("hpc7a.96xlarge", "spot", None),
        ("p5.48xlarge", "capacity-block", None),
        ("mac2.metal", "on-demand", None),
    ],
)
def test_a_type_counts_against_the_quota_of_its_family(name, lifecycle, code):
    """Return no quota where AWS has none."""
    quota = quota_of(name, lifecycle)
    assert (quota and quota.codes[0]) == code


def test_a_customers_default_key_is_a_warning_with_the_missing_grants():
    """Name the head node's role, and spot's role if it is used."""
    facts = replace(FITTING, default_key=DefaultKey("arn:aws:kms:…:key/1", of_customer=True))
    (item,) = (one for one in account_checks(CONFIG, facts, NOW) if one.slug == "customer-key")
    assert "kms:CreateGrant" in item.message
    assert f"{ACCOUNT}:role/aws-service-role/spot.amazonaws.com" in item.message
    on_demand = parse(FILE.replace("      - {type: g5.xlarge, capacity: spot}\n", ""))
    (item,) = (one for one in account_checks(on_demand, facts, NOW) if one.slug == "customer-key")
    assert "AWSServiceRoleForEC2Spot" not in item.message
    assert str(item.severity) == "warning"


def test_a_refused_dry_run_is_an_error_and_a_missing_right_a_note():
    """Never fail for a question that the caller may not ask."""
    facts = replace(
        FITTING,
        refused_launches=(RefusedLaunch(("images", "builder_type"), "a builder", "X", "no"),),
        unanswered=(Unanswered("zones", "ec2:DescribeAvailabilityZones"), Unanswered("a", "", "b")),
        zones=None,
        types=None,
        offered=None,
        quotas={},
        reservations=None,
        default_key=None,
    )
    assert found(facts) == {
        ("error", "launch-refused", "images.builder_type"),
        ("note", "not-checked", ""),
    }
    texts = [item.message for item in account_checks(CONFIG, facts, NOW)]
    assert "not checked: zones; the caller lacks ec2:DescribeAvailabilityZones" in texts
    assert "not checked: a; b" in texts


def test_head_node_and_builders_are_uses_of_a_type():
    """Ask for their types too."""
    by_place = {".".join(map(str, use.key_path)): use for use in uses(example("aws"))}
    assert by_place["head.instance_type"].zones == ("us-east-1a",)
    assert by_place["images.builder_type"].count == 2
    assert by_place["pools.cpu.offerings.0.type"].zones == ("us-east-1a", "us-east-1b")
    assert len(by_place) == 2 + sum(len(pool.offerings) for pool in example("aws").pools.values())


def test_login_nodes_are_a_use_of_their_type():
    config = example("aws").model_copy(update={"login_nodes": LoginNodes(count=3)})
    (use,) = [use for use in uses(config) if use.key_path == ("login_nodes", "instance_type")]
    assert (use.count, use.zones, use.lifecycle) == (3, ("us-east-1a",), "on-demand")
