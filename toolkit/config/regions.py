"""Checks the region: it must exist, and be in the partition `aws`."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from toolkit.config.raw import mapping
from toolkit.config.suggestions import suggestion
from toolkit.config.types import REGION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding

PARTITION = "aws"


def region_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a region in which the stack can't work.

    China, GovCloud and the isolated regions are partitions of their own, with other ARNs
    and service names: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html
    """
    region = mapping(raw, "aws").get("region")
    if not isinstance(region, str) or not re.fullmatch(REGION, region):
        return
    partition, names = _partition(region), _regions()
    if partition != PARTITION:
        message = f"{region} is in the partition {partition}; the toolkit works in {PARTITION} only"
        yield ("aws", "region"), message
    elif region not in names:
        yield ("aws", "region"), f"AWS has no region '{region}'{suggestion(region, names)}"


@cache
def _partition(region: str) -> str:
    from botocore.exceptions import UnknownRegionError
    from botocore.session import Session

    try:
        return str(Session().get_partition_for_region(region))
    except UnknownRegionError:
        return "unknown"


@cache
def _regions() -> tuple[str, ...]:
    """Return the regions with EC2 that this botocore knows."""
    from botocore.session import Session

    return tuple(Session().get_available_regions("ec2", PARTITION))
