"""Checks the region: it must exist, and be in the partition `aws`."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
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
    partition, names = partition_of(region), regions()
    if partition != PARTITION:
        message = f"{region} is in the partition {partition}; the toolkit works in {PARTITION} only"
        yield ("aws", "region"), message
    elif region not in names:
        yield ("aws", "region"), f"AWS has no region '{region}'{suggestion(region, names)}"


def partition_of(region: str) -> str:
    """Return the partition that has a region, by its name at least."""
    for partition in _partitions():
        is_like = re.match(partition["regionRegex"], region)
        if region in partition["regions"] or is_like:
            return str(partition["partition"])
    return "unknown"


def regions() -> tuple[str, ...]:
    """Return the regions with EC2 that this botocore knows."""
    (own,) = (item for item in _partitions() if item["partition"] == PARTITION)
    return tuple(name for name in own["services"]["ec2"]["endpoints"] if name in own["regions"])


@cache
def _partitions() -> list[dict[str, Any]]:
    """Return botocore's partitions.

    Its session has them too, but takes longer to load than all the rest of cluster.yaml: it reads
    the model of EC2.
    """
    from botocore import BOTOCORE_ROOT

    path = Path(BOTOCORE_ROOT) / "data" / "endpoints.json"
    partitions: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["partitions"]
    return partitions
