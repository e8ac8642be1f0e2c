"""The file of prices that the line at submit reads. Pure but for the reading of budgets.

cli_filter.lua reads it on every host with sbatch. It reads no escapes in texts: all texts here are
names that have none.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.budgets.figures import STALE
from slurmplugins.budgets.files import REMAINING
from slurmplugins.head.submit_history import NO_HISTORY
from slurmplugins.launch.fallback import fallback_order
from slurmplugins.model import json_input
from slurmplugins.model.instance import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from slurmplugins.cloud.spot_history import PricePoint
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.config.submit_line import SubmitLine
    from slurmplugins.head.submit_history import SubmitHistory
    from slurmplugins.model.instance import Offering

VERSION: Final = 1
SPOT: Final = "spot"


@dataclass(frozen=True, slots=True)
class Remaining:
    """The rest of each budget, as the last pass of slurm-budget wrote it."""

    accounts: Mapping[str, float] = field(default_factory=dict)
    """US dollars by account."""
    projects: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    """By project of which sbatch takes no jobs: why."""
    ended_accounts: Mapping[str, str] = field(default_factory=dict)
    """By account whose grant ended: what is told of it."""
    ended_projects: Mapping[str, str] = field(default_factory=dict)
    account_projects: Mapping[str, str] = field(default_factory=dict)
    """By account: the project of its jobs that name none."""


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
    remaining: Remaining,
    now: float,
    *,
    history: SubmitHistory = NO_HISTORY,
) -> bytes:
    """Return the file's content. All users of the cluster may read it."""
    value: dict[str, Any] = {
        "version": VERSION,
        "at": int(now),
        "default": part.default,
        "nodes": part.nodes,
        "partitions": {
            name: {
                **item,
                "offers": _offers(config, name, item["pools"], spot, history),
                "wait": history.wait(name),
            }
            for name, item in part.partitions.items()
        },
    }
    if remaining != Remaining():
        shown = visible(remaining, part.private_data)
        hides_users = bool(part.private_data & {"users", "accounts"})
        value |= {
            "remaining": dict(shown.accounts),
            "remaining_of_projects": dict(shown.projects),
            "refused_projects": dict(shown.refused),
            "ended_accounts": dict(shown.ended_accounts),
            "ended_projects": dict(shown.ended_projects),
            "account_projects": dict(shown.account_projects),
            "default_accounts": {} if hides_users else dict(part.default_accounts),
        }
    return (json.dumps(value, separators=(",", ":"), sort_keys=True) + "\n").encode()


def visible(remaining: Remaining, private_data: Collection[str]) -> Remaining:
    """Return what all users may read, by slurm.conf's PrivateData.

    A file has one reader or all: Lua can't open what is one account's alone.
    """
    shown = remaining
    if "usage" in private_data:
        shown = replace(shown, accounts={}, projects={})
    if "accounts" in private_data:
        ended = {
            name: _words(name, "grant ended, and pays no job") for name in shown.ended_projects
        }
        shown = replace(
            shown, accounts={}, ended_accounts={}, ended_projects=ended, account_projects={}
        )
    if {"usage", "accounts"} & frozenset(private_data):  # the words have the amount, and accounts
        refused = {name: _words(name, "budget takes no job now") for name in shown.refused}
        shown = replace(shown, refused=refused)
    return shown


def _words(project: str, what: str) -> str:
    return f"project {project}: its {what}"


def read_remaining(folder: Path, now: float) -> Remaining:
    """Return what is left of budgets.

    Empty without budgets, and if the file is old or can't be read.
    """
    try:
        if now - (folder / REMAINING).stat().st_mtime > STALE:
            return Remaining()
        value = json_input.loads((folder / REMAINING).read_bytes())
    except (OSError, ValueError):
        return Remaining()
    return Remaining(
        accounts=_amounts(value, "accounts"),
        projects=_amounts(value, "projects"),
        refused=_texts(value, "refused"),
        ended_accounts=_texts(value, "ended_accounts"),
        ended_projects=_texts(value, "ended_projects"),
        account_projects=_texts(value, "account_projects"),
    )


def _amounts(value: object, key: str) -> dict[str, float]:
    amounts = {name: _usd(usd) for name, usd in _items(value, key)}
    return {name: float(usd) for name, usd in amounts.items() if usd is not None}


def _texts(value: object, key: str) -> dict[str, str]:
    return {
        name: text
        for name, text in _items(value, key)
        if isinstance(text, str) and json.dumps(text) == f'"{text}"'
    }


def _items(value: object, key: str) -> list[tuple[str, object]]:
    """Return an object's entries whose names have no escapes."""
    part = value.get(key) if isinstance(value, dict) else None
    entries = part.items() if isinstance(part, dict) else ()
    return [(name, item) for name, item in entries if json.dumps(name) == f'"{name}"']


def _offers(
    config: BurstConfig,
    partition: str,
    pools: Iterable[str],
    spot: SpotPrices,
    history: SubmitHistory,
) -> dict[str, dict[str, Any]]:
    """Return each pool's first offering, and one that is bought otherwise."""
    offers = {}
    for name in pools:
        pool = config.pools.get(name)
        if pool is None:
            continue
        policy = config.policy_of(partition)
        first = next((group[0] for group in fallback_order(pool, policy, 0.0)), None)
        offer = None if first is None else _offer(first, spot)
        if first is None or offer is None:
            continue
        groups = fallback_order(pool, policy, math.inf)  # what is bought after a wait, too
        others = (item for group in groups for item in group if _buy(item) != offer["buy"])
        other = next(filter(None, (_offer(item, spot) for item in others)), None)
        past = history.interruptions(first.type) if offer["buy"] == SPOT else None
        offers[name] = (
            offer
            | ({} if other is None else {"other": other})
            | ({} if past is None else {"interruptions": past})
        )
    return offers


def _offer(offering: Offering, spot: SpotPrices) -> dict[str, Any] | None:
    """Return an offering with its price; None if the price is unknown."""
    usd = _price(offering, spot)
    if usd is None:
        return None
    return {"usd": float(usd), "type": offering.type, "buy": _buy(offering)}


def _buy(offering: Offering) -> str:
    if offering.lifecycle is Lifecycle.SPOT:
        return SPOT
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
