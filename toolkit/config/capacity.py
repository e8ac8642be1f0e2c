"""Checks offerings, reservations, partition policies and the spot limit for contradictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.config.raw import items, mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding, KeyPath

CAPACITY_BLOCK = "capacity-block"


def capacity_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield every contradiction in how pools get their instances."""
    zones = mapping(mapping(raw, "network"), "zones")
    for name, pool in mapping(raw, "pools").items():
        path: KeyPath = ("pools", name)
        offerings = [item for item in items(pool, "offerings") if isinstance(item, dict)]
        pool_zones = items(pool, "zones") or zones
        for index, offering in enumerate(offerings):
            yield from _offering((*path, "offerings", index), offering, pool_zones)
        yield from _static(path, pool)
        if _limits_spot(pool) and not _has_offering(offerings, "on-demand"):
            yield (*path, "max_spot_share"), "expected an on-demand offering for the rest"
        if isinstance(pool, dict) and pool.get("placement_group") is True:
            for index, offering in enumerate(offerings):
                if offering.get("capacity") == CAPACITY_BLOCK:
                    message = "a capacity block has its own placement: remove placement_group"
                    yield (*path, "offerings", index, "capacity"), message
    for name, partition in mapping(raw, "partitions").items():
        yield from _policy(("partitions", name), partition, mapping(raw, "pools"))


def _static(path: KeyPath, pool: Any) -> Iterator[Finding]:
    table = pool if isinstance(pool, dict) else {}
    static, count = table.get("static"), table.get("count")
    if isinstance(static, int) and isinstance(count, int) and static > count > 0:
        message = f"expected at most {count}, which is the pool's count, found {static}"
        yield (*path, "static"), message


def _offering(path: KeyPath, offering: Mapping[str, Any], zones: Any) -> Iterator[Finding]:
    capacity, reservation, zone = (offering.get(k) for k in ("capacity", "reservation", "zone"))
    if capacity == CAPACITY_BLOCK and reservation is None:
        yield path, "expected reservation: the id of the capacity block, such as cr-0abc"
    if capacity == "spot" and reservation is not None:
        yield (*path, "reservation"), "spot instances can't use a reservation"
    if reservation is not None and zone is None:
        yield path, "expected zone: the zone of the reservation"
    if isinstance(zone, str) and zone not in zones:
        yield (
            (*path, "zone"),
            f"the pool has no zone '{zone}'; it has: {', '.join(map(str, zones))}",
        )


def _policy(path: KeyPath, partition: Any, pools: Mapping[str, Any]) -> Iterator[Finding]:
    policy = partition.get("policy") if isinstance(partition, dict) else None
    if not isinstance(policy, str):
        return
    capacity = {"spot-only": "spot", "on-demand-only": "on-demand"}.get(policy.split(" ")[0])
    for name in items(partition, "pools"):
        pool = pools.get(name) if isinstance(name, str) else None
        offerings = [item for item in items(pool, "offerings") if isinstance(item, dict)]
        if capacity and offerings and not _has_offering(offerings, capacity):
            yield (*path, "policy"), f"pool {name} has no {capacity} offering"
        if capacity == "spot" and _limits_spot(pool):
            yield (*path, "policy"), f"pool {name} has max_spot_share, which spot-only exceeds"


def _limits_spot(pool: Any) -> bool:
    share = pool.get("max_spot_share", 1) if isinstance(pool, dict) else 1
    return isinstance(share, int | float) and share < 1


def _has_offering(offerings: list[dict[str, Any]], capacity: str) -> bool:
    """Return whether some offering has that capacity.

    Instances of a reservation are on demand, too.
    """
    if capacity == "on-demand":
        return any(item.get("capacity") in {"on-demand", CAPACITY_BLOCK} for item in offerings)
    return any(item.get("capacity") == capacity for item in offerings)
