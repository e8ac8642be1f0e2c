"""Laws of every fallback order and every launch call.

They hold for any cluster.yaml.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from slurmplugins.cloud import ec2_messages
from slurmplugins.launch.fallback import fallback_order
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Lifecycle, Offering, Policy, PolicyName, Pool
from slurmplugins.model.launch import LaunchRequest
from tests.fakes import launch_call

ZONES = ("us-east-1a", "us-east-1b")
NODES = hostlist.expand("gpu-[001-003]")


@st.composite
def offerings(draw: st.DrawFn) -> Offering:
    reservation = draw(st.sampled_from(["", "", "cr-0a", "cr-0b"]))
    lifecycle = Lifecycle.ON_DEMAND if reservation else draw(st.sampled_from(Lifecycle))
    return Offering(
        type=draw(st.sampled_from(["g5.xlarge", "g5.2xlarge", "p5.48xlarge"])),
        lifecycle=lifecycle,
        zone=draw(st.sampled_from(ZONES)),
        price=draw(st.sampled_from(["0", "0.4", "1.006"])),
        reservation=reservation,
        block=reservation == "cr-0b",
    )


pools = st.builds(
    Pool,
    name=st.just("gpu"),
    nodes=st.just(NODES),
    partition=st.just("spot"),
    launch_template=st.just("demo-gpu"),
    subnets=st.just({}),
    offerings=st.lists(offerings(), max_size=6, unique=True).map(tuple),
    one_by_one=st.booleans(),
)
policies = st.builds(Policy, st.sampled_from(PolicyName), st.sampled_from([0.0, 600.0]))
waits = st.sampled_from([0.0, 600.0])


@given(pools, policies, waits)
def test_an_offering_group_has_one_lifecycle_and_zone_and_a_reservation_is_alone(
    pool: Pool, given_policy: Policy, waited: float
):
    for rung in fallback_order(pool, given_policy, waited):
        assert len({(item.lifecycle, item.zone) for item in rung}) == 1
        assert len(rung) == 1 or not any(item.reservation for item in rung)


@given(pools, policies, waits)
def test_no_offering_is_tried_twice_or_made_up(pool: Pool, given_policy: Policy, waited: float):
    tried = [item for rung in fallback_order(pool, given_policy, waited) for item in rung]
    assert len({item.key for item in tried}) == len(tried)
    assert set(tried) <= set(pool.offerings)


@given(pools, policies, waits)
def test_reservations_are_left_out_by_spot_only_and_by_no_other_policy(
    pool: Pool, given_policy: Policy, waited: float
):
    tried = {item.key for rung in fallback_order(pool, given_policy, waited) for item in rung}
    reserved = {item.key for item in pool.offerings if item.reservation}
    if given_policy.name is not PolicyName.SPOT_ONLY:
        assert reserved <= tried


@given(pools, policies, waits, st.sampled_from(["subnet-a", ""]), st.integers(1, 3))
def test_ec2_refuses_no_call_of_a_fallback_order(
    pool: Pool, given_policy: Policy, waited: float, subnet: str, least: int
):
    """Check that EC2 reads the request's types, market, count and reservation."""
    for rung in fallback_order(pool, given_policy, waited):
        request = LaunchRequest(
            "a1", "demo", "gpu", "spot", "demo-gpu", subnet, rung[0], NODES, rung[1:], least
        )
        if request.others:
            call = launch_call.create_fleet(ec2_messages.create_fleet(request))
        else:
            call = launch_call.run_instances(ec2_messages.run_instances(request), {"cr-0b"})
        assert [item.type for item in call.choices] == [item.type for item in rung]
        assert {item.subnet for item in call.choices} == {subnet}
        assert (call.market, call.reservation) == (rung[0].lifecycle, rung[0].reservation)
        assert (call.least, call.most, call.template) == (least, 3, "demo-gpu")
        assert (call.tags.get("toolkit:order") == "pending") is bool(request.others)
        assert launch_call.hostlist(call.tags["toolkit:nodes"]) == list(NODES)


@given(offerings(), st.text(min_size=1), st.text(min_size=1))
def test_client_tokens_are_equal_for_one_launch_id_alone(offering: Offering, one: str, other: str):
    first = LaunchRequest("", "demo", "gpu", "spot", "demo-gpu", "s", offering, NODES)
    sent = [
        ec2_messages.run_instances(replace(first, attempt=item))["ClientToken"]
        for item in (one, other)
    ]
    assert (sent[0] == sent[1]) is (one == other)
    assert all(len(item) <= launch_call.TOKEN_LENGTH for item in sent)
