"""Prices of the local cloud: plausible, and the same on every machine at the same hour.

A spot price is a share of the on-demand price that moves a little every six
hours, by a digest of type, zone and hour. The on-demand prices of common types
are EC2's of us-east-1; of the others, an estimate from their size.
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.responses import EC2Response

from toolkit.local.aws.list_prices import ON_DEMAND
from toolkit.local.aws.paging import page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.local.aws.moto_patches import Patches

PERIOD = 6 * 3600  # seconds a price holds
_PAGE = 1000  # prices EC2 returns in one answer at most
_LONGEST = 90 * 86400  # seconds of history EC2 keeps

_PER_CPU = Decimal("0.048")
_PER_GPU = Decimal("0.80")


def on_demand_price(instance_type: str) -> Decimal:
    """Return USD an hour."""
    if instance_type in ON_DEMAND:
        return Decimal(ON_DEMAND[instance_type])
    facts = INSTANCE_TYPES.get(instance_type, {})
    cpus = int((facts.get("VCpuInfo") or {}).get("DefaultVCpus") or 2)
    gpus = sum(int(gpu.get("Count") or 0) for gpu in (facts.get("GpuInfo") or {}).get("Gpus", ()))
    return cpus * _PER_CPU + gpus * _PER_GPU


@lru_cache(maxsize=16384)
def _share(instance_type: str, zone: str, period: int) -> Decimal:
    """Return spot's share of the on-demand price: 28 % to 48 %."""
    base = hashlib.sha256(f"{instance_type}/{zone}".encode()).digest()[0]
    drift = hashlib.sha256(f"{instance_type}/{zone}/{period}".encode()).digest()[0]
    return (Decimal(28) + Decimal(base) * 16 / 255 + Decimal(drift) * 4 / 255) / 100


def spot_price(instance_type: str, zone: str, timestamp: float) -> str:
    """Return USD an hour with six places, as EC2 writes it."""
    share = _share(instance_type, zone, int(timestamp // PERIOD))
    return str((on_demand_price(instance_type) * share).quantize(Decimal("0.000001")))


def history(
    region: str, params: Mapping[str, Any], filters: Mapping[str, Sequence[str]], now: float
) -> Iterator[dict[str, Any]]:
    """Return every price in force between StartTime and EndTime, the latest first."""
    types = set(params.get("InstanceTypes") or filters.get("instance-type") or ())
    zones = set(filters.get("availability-zone") or ())
    if params.get("AvailabilityZone"):
        zones.add(str(params["AvailabilityZone"]))
    end = _moment(params.get("EndTime"), now)
    start = max(_moment(params.get("StartTime"), end), now - _LONGEST)
    products = params.get("ProductDescriptions") or filters.get("product-description")
    if products and not {"Linux/UNIX", "Linux/UNIX (Amazon VPC)"} & set(products):
        return
    for offer in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, ()):
        name, zone = str(offer["InstanceType"]), str(offer["Location"])
        if (types and name not in types) or (zones and zone not in zones):
            continue
        for period in range(int(min(end, now) // PERIOD), int(start // PERIOD) - 1, -1):
            timestamp = period * PERIOD
            yield {
                "InstanceType": name,
                "AvailabilityZone": zone,
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": spot_price(name, zone, timestamp),
                "Timestamp": datetime.fromtimestamp(timestamp, UTC).strftime(
                    "%Y-%m-%dT%H:%M:%S.000Z"
                ),
            }


def _moment(value: Any, default: float) -> float:
    if value is None:
        return default
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def install(patches: Patches, wall: Any) -> None:
    """Put this in place of moto's price of 0.00001 for everything."""

    def describe_spot_price_history(response: Any) -> Any:
        response.error_on_dryrun()
        params = response.params
        filters = response._filters_from_querystring()
        rows = list(history(response.region, params, filters, wall()))
        page_rows, next_token = page(rows, params, size=_PAGE)
        return ActionResult({"SpotPriceHistory": page_rows, "NextToken": next_token or ""})

    patches.replace(EC2Response, "describe_spot_price_history", describe_spot_price_history)
