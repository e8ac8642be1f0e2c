"""EC2's history of spot prices, which it keeps for 90 days."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud.client import call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.system.clock import Clock

    PricePoint = tuple[str, str, int, str]
    """Type, zone, second of the change, and US dollars an hour."""

PRODUCT: Final = "Linux/UNIX"
KEPT_SECONDS: Final = 90 * 86_400


def spot_prices(
    connect: Callable[[], Any], clock: Clock, types: Sequence[str], since: int, until: int
) -> list[PricePoint]:
    """Return the changes of since … until in all zones.

    Raises CloudError. EC2 adds the last change before `since`.
    """
    client = connect()
    points: list[PricePoint] = []
    more: dict[str, str] = {}
    while True:
        page = call(
            clock,
            "describe_spot_price_history",
            lambda more=more: client.describe_spot_price_history(  # type: ignore[misc]
                InstanceTypes=sorted(types),
                ProductDescriptions=[PRODUCT],
                StartTime=datetime.fromtimestamp(since, UTC),
                EndTime=datetime.fromtimestamp(until, UTC),
                **more,
            ),
        )
        points += [
            (
                str(item["InstanceType"]),
                str(item["AvailabilityZone"]),
                int(item["Timestamp"].timestamp()),
                str(item["SpotPrice"]),
            )
            for item in page["SpotPriceHistory"]
        ]
        if not page.get("NextToken"):
            return points
        more = {"NextToken": page["NextToken"]}
