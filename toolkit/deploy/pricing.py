"""The prices in a bundle: those of the price book, and a snapshot of the spot market.

The snapshot is kept beside the bundle, and only deploy and apply write it. Without it each
deploy would see other spot prices, and the market would change a cluster that nobody has changed.
"""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import TYPE_CHECKING

from toolkit.prices import PriceQuery
from toolkit.prices.spot import read_history
from toolkit.render import PriceTable

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.deploy.storage import Bucket
    from toolkit.prices import PriceBook

SNAPSHOT_KEY = "prices/spot.json"
# Ranks and weights need no newer prices; the bill is priced second by second elsewhere.
FRESH_SECONDS = 7 * 86_400

SpotPrices = dict[tuple[str, str], Decimal]


def price_table(
    config: ClusterConfig, clients: Clients, bucket: Bucket, book: PriceBook
) -> PriceTable:
    """Return on-demand prices and the snapshot's spot prices; write nothing.

    Spot prices are the current ones if the snapshot is old or lacks an offering. The book gives
    the prices on demand of this moment: negotiated, imported or of the bundled catalogue.
    """
    offerings = _spot_offerings(config)
    now = time.time()
    spot_prices = _snapshot(bucket, now)
    if not offerings <= spot_prices.keys():
        spot_prices = _current_spot_prices(clients, offerings, int(now))
    spot = {key: usd for key, usd in spot_prices.items() if key in offerings and usd}
    types = {offering.type for pool in config.pools.values() for offering in pool.offerings}
    on_demand = {name: _on_demand(book, name, int(now)) for name in sorted(types)}
    return PriceTable({name: usd for name, usd in on_demand.items() if usd is not None}, spot)


def renew_snapshot(config: ClusterConfig, clients: Clients, bucket: Bucket) -> None:
    """Write current spot prices to the bucket if its snapshot is old.

    Does so too if the snapshot lacks an offering. May be repeated.
    """
    offerings = _spot_offerings(config)
    now = time.time()
    if not offerings <= _snapshot(bucket, now).keys():
        bucket.write(SNAPSHOT_KEY, _dump(_current_spot_prices(clients, offerings, int(now)), now))


def tag_price(book: PriceBook, instance_type: str) -> str:
    """Return an instance's hourly price on demand, for its tag.

    Empty when the book doesn't have it.
    """
    usd = _on_demand(book, instance_type, int(time.time()))
    return "" if usd is None else f"{usd:f}"


def _on_demand(book: PriceBook, instance_type: str, now: int) -> Decimal | None:
    price = book.on_demand(PriceQuery(instance_type, "", False, None, now), now)
    return price.usd_per_hour if price.is_known else None


def _spot_offerings(config: ClusterConfig) -> set[tuple[str, str]]:
    return {
        (offering.type, zone)
        for name, pool in config.pools.items()
        for offering in pool.offerings
        if offering.capacity == "spot"
        for zone in config.offering_zones(name, offering)
    }


def _current_spot_prices(clients: Clients, offerings: set[tuple[str, str]], now: int) -> SpotPrices:
    """Return each offering's current price.

    Offerings that the market doesn't list, or lists without a readable price, get 0, so they are
    not requested again.
    """
    types = {kind for kind, _ in offerings}
    history = read_history(clients.client("ec2"), types, now, now + 1)
    changes = history.changes
    current = {key: changes[key][-1][1] for key in offerings if changes.get(key)}
    return {key: current.get(key) or Decimal(0) for key in offerings}


def _snapshot(bucket: Bucket, now: float) -> SpotPrices:
    snapshot = bucket.read_json(SNAPSHOT_KEY)
    if snapshot is None or now - float(snapshot.get("at", 0)) > FRESH_SECONDS:
        return {}
    return {(row[0], row[1]): Decimal(row[2]) for row in snapshot.get("spot", ())}


def _dump(spot: SpotPrices, now: float) -> bytes:
    rows = sorted([kind, zone, f"{usd:f}"] for (kind, zone), usd in spot.items())
    return json.dumps({"at": now, "spot": rows}).encode()
