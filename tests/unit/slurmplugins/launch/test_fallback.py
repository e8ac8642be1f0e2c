"""Fallback orders made of a pool's offerings, and its spending on spot."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.launch import fallback
from slurmplugins.launch.fallback import Spend, apply_spot_limit, spend_by_pool, spot_price
from slurmplugins.model import hostlist
from slurmplugins.model.instance import (
    Instance,
    InstanceState,
    Lifecycle,
    Offering,
    OfferingGroup,
    Policy,
    PolicyName,
    Pool,
)

A, B = "us-east-1a", "us-east-1b"
SPOT = Offering("g5.xlarge", Lifecycle.SPOT, A, "0.40")
SPOT_2 = replace(SPOT, type="g5.2xlarge", price="0.50")
SPOT_B = replace(SPOT, zone=B)
DEMAND = Offering("g5.xlarge", Lifecycle.ON_DEMAND, A, "1.00")
DEMAND_2 = replace(DEMAND, type="g5.2xlarge", price="1.20")
RESERVED = replace(DEMAND, reservation="cr-0a")
OTHER = replace(DEMAND, reservation="cr-0b")
P = PolicyName


def ladder(
    *offerings: Offering, policy_: Policy | None = None, waited: float = 0.0
) -> tuple[OfferingGroup, ...]:
    pool = Pool("gpu", hostlist.expand("gpu-1"), "spot", "demo-gpu", {}, offerings)
    return fallback.fallback_order(pool, policy_ or Policy(), waited)


@pytest.mark.parametrize(
    ("preference", "expected"),
    [
        (P.AS_LISTED, [SPOT, DEMAND, RESERVED]),
        (P.SPOT_ONLY, [SPOT]),
        (P.SPOT_FIRST, [RESERVED, SPOT, DEMAND]),
        (P.ON_DEMAND_AFTER, [RESERVED, SPOT]),
        (P.ON_DEMAND_ONLY, [RESERVED, DEMAND]),
        (P.CHEAPEST_FIRST, [RESERVED, SPOT, DEMAND]),
    ],
)
def test_a_reservation_is_used_first_because_it_is_paid_for(
    preference: PolicyName, expected: list[Offering]
):
    found = ladder(SPOT, DEMAND, RESERVED, policy_=Policy(preference, on_demand_after=60))
    assert [item for rung in found for item in rung] == expected


@pytest.mark.parametrize(("waited", "allowed"), [(59.9, False), (60.0, True)])
def test_a_job_goes_on_demand_after_its_wait(waited: float, allowed: bool):
    found = ladder(
        SPOT, DEMAND, policy_=Policy(P.ON_DEMAND_AFTER, on_demand_after=60), waited=waited
    )
    assert (DEMAND in [item for rung in found for item in rung]) is allowed


@pytest.mark.parametrize(
    "offerings",
    [
        (RESERVED, DEMAND_2),
        (DEMAND_2, RESERVED),
        (DEMAND_2, RESERVED, DEMAND),
        (RESERVED, OTHER),
    ],
)
def test_a_reservation_shares_its_call_with_no_other_offering(offerings: tuple[Offering, ...]):
    """Order a reservation beside other offerings.

    CreateFleet has no parameter for a reservation, so a fleet would silently leave it out.
    """
    assert ladder(*offerings) == tuple((item,) for item in offerings)


def test_what_is_bought_in_one_way_and_zone_is_one_call():
    found = ladder(SPOT, SPOT_B, SPOT_2, DEMAND, DEMAND_2)
    assert found == ((SPOT, SPOT_2), (SPOT_B,), (DEMAND, DEMAND_2))


def test_each_offering_is_a_call_of_its_own_where_their_order_is_the_users():
    in_order = Pool(
        "gpu", hostlist.expand("gpu-1"), "spot", "t", {}, (SPOT, SPOT_2), one_by_one=True
    )
    assert fallback.fallback_order(in_order, Policy(), 0.0) == ((SPOT,), (SPOT_2,))
    assert ladder(SPOT, SPOT_2, policy_=Policy(P.CHEAPEST_FIRST)) == ((SPOT,), (SPOT_2,))
    assert ladder(SPOT, SPOT_2) == ((SPOT, SPOT_2),)


def test_the_price_of_spot_is_the_first_spot_offerings_if_there_is_one():
    assert spot_price([(DEMAND,), (SPOT_2, SPOT), (SPOT,)]) == Decimal("0.50")
    assert spot_price([(DEMAND,)]) is None
    bought = apply_spot_limit(Spend(), ((DEMAND,),), 2, 0.0)
    assert bought == (Spend(total=Decimal("2.00")), ((DEMAND,),))


def test_what_is_listed_for_a_zone_and_for_all_zones_is_asked_for_once():
    """List a spot offering for one zone and for all zones.

    EC2 refuses a fleet that names an instance pool twice. The refusal would hold every job.
    """
    assert ladder(SPOT, SPOT_2, replace(SPOT, price="0.41")) == ((SPOT, SPOT_2),)


def test_an_unknown_price_goes_last_of_the_cheapest():
    unknown = replace(SPOT_2, price="0")
    found = ladder(unknown, DEMAND, SPOT, policy_=Policy(P.CHEAPEST_FIRST))
    assert found == ((SPOT,), (DEMAND,), (unknown,))


def machine(state: InstanceState, lifecycle: Lifecycle = Lifecycle.SPOT) -> Instance:
    return Instance(
        id="i-1",
        state=state,
        role="compute",
        node=None,
        pool="gpu",
        partition="spot",
        attempt="a",
        type="g5.xlarge",
        zone=A,
        lifecycle=lifecycle,
        address="",
        price="0.40",
        launched_at=0.0,
    )


@pytest.mark.parametrize("state", InstanceState)
def test_only_a_live_instance_counts_in_spots_share(state: InstanceState):
    """Count an instance in each state.

    EC2 lists a terminated instance for an hour, and it costs nothing.
    """
    found = spend_by_pool([machine(state)]).get("gpu", Spend())
    assert found.spot == (Decimal("0.40") if state.live else 0)


def test_spot_goes_up_to_its_share_and_not_beyond():
    known = Spend(spot=Decimal("0.40"), total=Decimal("1.40"))
    rungs = ((SPOT,), (DEMAND,))
    exact = apply_spot_limit(known, rungs, 1, 0.80 / 1.80 + 1e-9)
    assert exact == (Spend(Decimal("0.80"), Decimal("1.80")), rungs)
    over = apply_spot_limit(known, rungs, 1, 0.80 / 1.80 - 1e-9)
    assert over == (Spend(Decimal("0.40"), Decimal("2.40")), ((DEMAND,),))


def test_spot_may_be_exactly_its_share():
    on_demand = Spend(total=Decimal("0.40"))
    assert apply_spot_limit(on_demand, ((SPOT,),), 1, 0.5)[1] == ((SPOT,),)


def test_a_job_without_any_offering_left_adds_no_cost():
    assert apply_spot_limit(Spend(), ((SPOT,),), 1, 0.0) == (Spend(), ())


@pytest.mark.parametrize(
    ("tag", "price"),
    [
        ("", "0"),
        ("many", "0"),
        ("-1", "0"),
        ("NaN", "0"),
        ("Infinity", "0"),
        ("999999", "999999"),
        ("1000000", "0"),
    ],
)
def test_a_price_tag_that_is_no_price_counts_as_nothing(tag: str, price: str):
    """Read price tags that anybody with tagging rights may have written."""
    instance = replace(machine(InstanceState.RUNNING), price=tag)
    assert spend_by_pool([instance])["gpu"].total == Decimal(price)
