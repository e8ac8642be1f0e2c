"""The file of prices that the line at submit reads. Pure but for the reading of budgets.

cli_filter.lua reads it on every host with sbatch. It reads no escapes in texts: all texts here are
names that have none.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.budgets.files import REMAINING
from slurmplugins.budgets.ladder import STALE
from slurmplugins.launch.fallback import fallback_order
from slurmplugins.model import json_input
from slurmplugins.model.instance import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slurmplugins.cloud.spot_history import PricePoint
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.config.submit_line import SubmitLine
    from slurmplugins.model.instance import Offering

VERSION: Final = 1
SpotPrices = dict[tuple[str, str], str]
"""US dollars an hour, by type and zone."""


def current_prices(points: Iterable[PricePoint]) -> SpotPrices:
    """Return the newest price of each type and zone."""
    return {(kind, zone): usd for kind, zone, _, usd in sorted(points, key=lambda item: item[2])}


def spot_types(config: BurstConfig) -> list[str]:
    """Return the types that any pool buys on spot."""
    return sorted(
        {
            offering.type
            for pool in config.pools.values()
            for offering in pool.offerings
            if offering.lifecycle is Lifecycle.SPOT
        }
    )


def document(
    config: BurstConfig,
    part: SubmitLine,
    spot: SpotPrices,
    remaining: Mapping[str, float],
    now: float,
) -> bytes:
    """Return the file's content."""
    value: dict[str, Any] = {
        "version": VERSION,
        "at": int(now),
        "default": part.default,
        "nodes": part.nodes,
        "partitions": {
            name: {**item, "offers": _offers(config, name, item["pools"], spot)}
            for name, item in part.partitions.items()
        },
    }
    if remaining:
        value |= {"remaining": dict(remaining), "default_accounts": dict(part.default_accounts)}
    return (json.dumps(value, separators=(",", ":"), sort_keys=True) + "\n").encode()


def read_remaining(folder: Path, now: float) -> dict[str, float]:
    """Return what is left of each account's budget.

    Empty without budgets, and if the file is old or can't be read.
    """
    try:
        if now - (folder / REMAINING).stat().st_mtime > STALE:
            return {}
        items = json_input.loads((folder / REMAINING).read_bytes())
    except (OSError, ValueError):
        return {}
    accounts = items.get("accounts", items) if isinstance(items, dict) else {}
    found = {}
    for name, usd in accounts.items() if isinstance(accounts, dict) else ():
        amount = _usd(usd)
        if amount is not None and json.dumps(name) == f'"{name}"':
            found[name] = float(amount)
    return found


def _offers(
    config: BurstConfig, partition: str, pools: Iterable[str], spot: SpotPrices
) -> dict[str, dict[str, Any]]:
    """Return each pool's first offering with its price."""
    offers = {}
    for name in pools:
        pool = config.pools.get(name)
        if pool is None:
            continue
        groups = fallback_order(pool, config.policy_of(partition), 0.0)
        offering = next((group[0] for group in groups), None)
        usd = None if offering is None else _price(offering, spot)
        if offering is not None and usd is not None:
            offers[name] = {"usd": float(usd), "type": offering.type, "buy": _buy(offering)}
    return offers


def _buy(offering: Offering) -> str:
    if offering.lifecycle is Lifecycle.SPOT:
        return "spot"
    return "reserved" if offering.reservation else "on demand"


def _price(offering: Offering, spot: SpotPrices) -> Decimal | None:
    """Return the price of now, else the last deploy's, if known."""
    if offering.lifecycle is Lifecycle.SPOT:
        usd = _usd(spot.get((offering.type, offering.zone)))
        if usd is not None and usd > 0:
            return usd
    usd = _usd(offering.price)
    return usd if usd is not None and usd > 0 else None


def _usd(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        usd = Decimal(str(value))
    except InvalidOperation:
        return None
    return usd if usd.is_finite() else None
