"""The limits of any request: EC2's number of filter values and length of a token.

Also the reading of a fleet's options. Contradictions between parameters are in
`launch_conflicts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.ec2.responses._base_response import EC2BaseResponse

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.launch_request import parse_bool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.aws.moto_patches import Patches

FILTER_VALUES = 200  # of all filters of one call together
TOKEN_LIMIT = 64  # characters
_SPOT_PRIORITIES = "capacity-optimized-prioritized"
_ON_DEMAND_PRIORITIES = "prioritized"
_DIVERSIFIED = "diversified"


def install(patches: Patches) -> None:
    """Have every Describe call refuse more filter values than EC2 takes."""
    original = EC2BaseResponse._filters_from_querystring  # noqa: SLF001 - moto's way to read them

    def filters(response: Any) -> dict[str, Any]:
        filters_by_name: dict[str, Any] = original(response)
        if sum(len(values) for values in filters_by_name.values()) > FILTER_VALUES:
            message = (
                f"The maximum number of filter values specified on a single call is {FILTER_VALUES}"
            )
            raise ec2_error("FilterLimitExceeded", message)
        return filters_by_name

    patches.replace(EC2BaseResponse, "_filters_from_querystring", filters)


def check_token(token: object) -> None:
    """Refuse a client token that is longer than EC2 keeps."""
    if len(str(token)) > TOKEN_LIMIT:
        raise ec2_error("InvalidParameterValue", f"ClientToken exceeds {TOKEN_LIMIT} characters")


def single_type(options: Mapping[str, Any]) -> bool:
    """Return whether all instances of the fleet must have one type."""
    return bool(parse_bool(options.get("SingleInstanceType")))


def single_zone(options: Mapping[str, Any]) -> bool:
    """Return whether all instances of the fleet must be in one zone."""
    return bool(parse_bool(options.get("SingleAvailabilityZone")))


def by_priority(options: Mapping[str, Any]) -> bool:
    """Return whether the caller's order of offerings decides."""
    return options.get("AllocationStrategy") in (_SPOT_PRIORITIES, _ON_DEMAND_PRIORITIES)


def diversified(options: Mapping[str, Any]) -> bool:
    """Return whether every offering gets an equal part."""
    return options.get("AllocationStrategy") == _DIVERSIFIED
