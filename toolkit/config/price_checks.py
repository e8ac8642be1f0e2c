"""Checks the prices of cluster.yaml against each other and against the pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmplugins.errors import BadName
from slurmplugins.model.hostlist import parse, pool_of
from toolkit.config.money import parse_moment
from toolkit.config.rack_names import rack_nodes
from toolkit.config.raw import items, mapping
from toolkit.config.suggestions import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding, KeyPath

_DERIVED = ("capex_usd", "years", "target_utilisation")
_RUNNING = ("watts", "usd_per_kwh", "staff_usd_per_year")


def price_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield prices that are ambiguous, incomplete, or of unknown things."""
    prices = mapping(raw, "prices")
    if prices and prices.get("as_of") is None:
        yield ("prices",), "expected as_of: the day on which these prices were true"
    kept: list[dict[str, Any]] = []
    for path, entry in _entries(prices, "on_demand"):
        yield from _on_demand(path, entry)
        scope = {key: entry.get(key) for key in ("type", "region", "since", "until")}
        if scope in kept:
            yield path, "an entry above is for the same type, region and time"
        kept.append(scope)
    for path, entry in _entries(prices, "reserved_instances"):
        yield from _one_of(path, entry, "type", "family")
    for path, entry in _entries(prices, "savings_plans"):
        yield from _savings_plan(path, entry)
    for path, entry in _entries(prices, "capacity_blocks"):
        yield from _capacity_block(path, entry, mapping(raw, "pools"))
    for section in ("on_demand", "reserved_instances", "savings_plans", "capacity_blocks"):
        for path, entry in _entries(prices, section):
            yield from _term(path, entry)
    yield from _racks(prices, mapping(raw, "pools"))


def _entries(prices: Mapping[str, Any], section: str) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    for index, entry in enumerate(items(prices, section)):
        if isinstance(entry, dict):
            yield ("prices", section, index), entry


def _one_of(path: KeyPath, entry: Mapping[str, Any], one: str, other: str) -> Iterator[Finding]:
    if (one in entry) == (other in entry):
        yield path, f"expected either {one} or {other}"


def _on_demand(path: KeyPath, entry: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _one_of(path, entry, "usd_per_hour", "discount_percent")
    if "usd_per_hour" in entry and "type" not in entry:
        yield path, "expected type: the instance type that has this price"


def _savings_plan(path: KeyPath, entry: Mapping[str, Any]) -> Iterator[Finding]:
    if "type" in entry and "family" in entry:
        yield path, "expected type or family, or none of them"
    if "discount_percent" not in entry and not mapping(entry, "rates"):
        yield path, "expected discount_percent, or rates by instance type"


def _capacity_block(
    path: KeyPath, entry: Mapping[str, Any], pools: Mapping[str, Any]
) -> Iterator[Finding]:
    yield from _one_of(path, entry, "reservation", "pool")
    reservation, pool = entry.get("reservation"), entry.get("pool")
    if isinstance(pool, str) and pool not in pools:
        yield (*path, "pool"), f"unknown pool '{pool}'{suggestion(pool, pools)}"
    offered = {
        offering.get("reservation")
        for section in pools.values()
        for offering in items(section, "offerings")
        if isinstance(offering, dict)
    }
    if isinstance(reservation, str) and reservation not in offered:
        message = f"no pool has an offering of {reservation}; name the pool that had it instead"
        yield (*path, "reservation"), message


def _term(path: KeyPath, entry: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        since, until = parse_moment(entry.get("since")), parse_moment(entry.get("until"))
    except ValueError:
        return  # the model reports it, or there is only one of them
    if since >= until:
        yield (*path, "until"), "expected a moment after since"


def _racks(prices: Mapping[str, Any], pools: Mapping[str, Any]) -> Iterator[Finding]:
    owners: dict[str, int] = {}
    for index, (path, entry) in enumerate(_entries(prices, "racks")):
        yield from _rate(path, entry)
        try:
            names = rack_nodes(str(entry.get("nodes", "")))
        except ValueError:
            continue  # the model reports it
        repeated = next((name for name in names if name in owners), None)
        if repeated is not None or len(set(names)) < len(names):
            yield (*path, "nodes"), f"{repeated or 'a node'} is listed twice; a node has one rate"
        of_pool = next((name for name in names if _pool_of(name) in pools), None)
        if of_pool is not None:
            message = f"{of_pool} is a node of pool {_pool_of(of_pool)}, whose instances are priced"
            yield (*path, "nodes"), message
        owners |= dict.fromkeys(names, index)


def _pool_of(name: str) -> str | None:
    try:
        return pool_of(parse(name))
    except BadName:
        return None


def _rate(path: KeyPath, entry: Mapping[str, Any]) -> Iterator[Finding]:
    given = [key for key in (*_DERIVED, *_RUNNING) if key in entry]
    if "usd_per_hour" in entry:
        if given:
            yield (*path, given[0]), "the node has usd_per_hour already, and needs no other key"
        return
    missing = [key for key in _DERIVED if key not in entry]
    if missing:
        yield path, f"expected usd_per_hour, or {', '.join(_DERIVED)}; {missing[0]} is missing"
    if ("watts" in entry) != ("usd_per_kwh" in entry):
        yield path, "expected watts and usd_per_kwh together"
