"""What EC2 refuses in a request before it looks for capacity. Pure, but for what it is put into.

The codes of fleets' refusals are not documented; EC2's documentation says what is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.ec2.responses._base_response import EC2BaseResponse

from toolkit.local.layer.launch import SPOT, check_spot, truth
from toolkit.local.layer.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.layer.patches import Patches

FILTER_VALUES = 200  # of all filters of one call together
TOKEN_LIMIT = 64  # characters
_CHEAPEST = ("lowest-price", "price-capacity-optimized", "capacity-optimized")
_SPOT_PRIORITIES = "capacity-optimized-prioritized"
_ON_DEMAND_PRIORITIES = "prioritized"
_DIVERSIFIED = "diversified"
_SPOT_STRATEGIES = (*_CHEAPEST, _SPOT_PRIORITIES, _DIVERSIFIED)
_ON_DEMAND_STRATEGIES = ("lowest-price", _ON_DEMAND_PRIORITIES)


def install(patches: Patches) -> None:
    """Have every Describe call refuse more filter values than EC2 takes."""
    original = EC2BaseResponse._filters_from_querystring  # noqa: SLF001 - moto's way to read them

    def filters(response: Any) -> dict[str, Any]:
        found: dict[str, Any] = original(response)
        if sum(len(values) for values in found.values()) > FILTER_VALUES:
            message = (
                f"The maximum number of filter values specified on a single call is {FILTER_VALUES}"
            )
            raise refused("FilterLimitExceeded", message)
        return found

    patches.replace(EC2BaseResponse, "_filters_from_querystring", filters)


def check_token(token: object) -> None:
    """Refuse a client token that is longer than EC2 keeps."""
    if len(str(token)) > TOKEN_LIMIT:
        raise refused("InvalidParameterValue", f"ClientToken exceeds {TOKEN_LIMIT} characters")


def check_fleet(market: str, options: Mapping[str, Any]) -> None:
    """Refuse options that an instant fleet can't have on this market."""
    known = _SPOT_STRATEGIES if market == SPOT else _ON_DEMAND_STRATEGIES
    strategy = options.get("AllocationStrategy")
    if strategy and strategy not in known:
        message = f"The allocation strategy '{strategy}' is invalid for {market} capacity."
        raise refused("InvalidParameterValue", message)
    if market == SPOT:
        check_spot({**options, "SpotInstanceType": "one-time"})
    if options.get("MinTargetCapacity") and not one_zone(options) and not one_type(options):
        message = (
            "MinTargetCapacity requires SingleAvailabilityZone or SingleInstanceType to be true."
        )
        raise refused("InvalidParameterCombination", message)


def one_type(options: Mapping[str, Any]) -> bool:
    """Tell whether all instances of the fleet have to be of one type."""
    return bool(truth(options.get("SingleInstanceType")))


def one_zone(options: Mapping[str, Any]) -> bool:
    """Tell whether all instances of the fleet have to be in one zone."""
    return bool(truth(options.get("SingleAvailabilityZone")))


def by_priority(options: Mapping[str, Any]) -> bool:
    """Tell whether the caller's order of offerings decides."""
    return options.get("AllocationStrategy") in (_SPOT_PRIORITIES, _ON_DEMAND_PRIORITIES)


def diversified(options: Mapping[str, Any]) -> bool:
    """Tell whether every offering gets an equal part."""
    return options.get("AllocationStrategy") == _DIVERSIFIED
