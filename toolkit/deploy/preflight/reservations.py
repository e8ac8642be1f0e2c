"""Checks capacity reservations and capacity blocks of a cluster. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.deploy.preflight.findings import Finding, Severity
from toolkit.deploy.preflight.uses import offering_of, uses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from toolkit.config import ClusterConfig
    from toolkit.config.model import OfferingSection, PoolSection
    from toolkit.config.raw import KeyPath
    from toolkit.deploy.preflight.facts import AccountFacts, Reservation

# A block that was bought begins later, and is no mistake.
WAITING = frozenset({"scheduled", "payment-pending", "pending"})
ACTIVE = "active"


def reservation_checks(
    config: ClusterConfig, facts: AccountFacts, now: datetime
) -> Iterator[Finding]:
    """Yield reservations that can't give the pool's instances."""
    if facts.reservations is None:
        return
    for use in uses(config):
        if not use.pool:
            continue
        pool, offering = offering_of(config, use)
        if offering.reservation is None:
            continue
        key_path = (*use.key_path[:-1], "reservation")
        reservation = facts.reservations.get(offering.reservation)
        if reservation is None:
            message = f"the account has no capacity reservation {offering.reservation}"
            yield Finding("no-such-reservation", Severity.ERROR, key_path, message)
            continue
        yield from _match(key_path, offering, reservation)
        yield from _time(key_path, reservation, now)
        yield from _size(key_path, pool, reservation)
        yield from _placement(key_path, pool, reservation)


def _match(
    key_path: KeyPath, offering: OfferingSection, reservation: Reservation
) -> Iterator[Finding]:
    pairs = (
        ("instance type", reservation.instance_type, offering.type),
        ("zone", reservation.zone, offering.zone),
    )
    for what, existing, expected in pairs:
        if existing != expected:
            message = (
                f"{reservation.id} is of the {what} {existing}, and the offering is of {expected}"
            )
            yield Finding("reservation-mismatch", Severity.ERROR, key_path, message)
    is_block = offering.capacity == "capacity-block"
    if reservation.is_block != is_block:
        kind = "a capacity block" if reservation.is_block else "no capacity block"
        expected = "capacity-block" if reservation.is_block else "on-demand"
        message = f"{reservation.id} is {kind}: expected capacity {expected}"
        yield Finding("reservation-kind", Severity.ERROR, key_path, message)


def _time(key_path: KeyPath, reservation: Reservation, now: datetime) -> Iterator[Finding]:
    if reservation.ends_at is not None and reservation.ends_at <= now:
        message = f"{reservation.id} ended at {reservation.ends_at:%Y-%m-%d %H:%M} UTC"
        yield Finding("reservation-over", Severity.ERROR, key_path, message)
    elif reservation.state in WAITING:
        message = f"{reservation.id} is {reservation.state}: until it is active it gives nothing"
        yield Finding("reservation-waits", Severity.WARNING, key_path, message)
    elif reservation.state != ACTIVE:
        message = f"{reservation.id} is {reservation.state}, and gives no instance"
        yield Finding("reservation-over", Severity.ERROR, key_path, message)


def _size(key_path: KeyPath, pool: PoolSection, reservation: Reservation) -> Iterator[Finding]:
    if reservation.total < pool.count:
        others = len(pool.offerings) > 1
        rest = "other offerings give the rest" if others else "the other nodes never start"
        message = (
            f"{reservation.id} has {reservation.total} instances, and the pool {pool.count} nodes:"
            f" {rest}"
        )
        yield Finding("reservation-small", Severity.WARNING, key_path, message)


def _placement(key_path: KeyPath, pool: PoolSection, reservation: Reservation) -> Iterator[Finding]:
    """Yield contradictions between placement groups.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/cr-cpg.html: a reservation in a
    group serves launches into that group alone, and the stack makes a group of its own.
    """
    if reservation.placement_group:
        message = (
            f"{reservation.id} is in the placement group {reservation.placement_group}, and only"
            " launches into it can use it: make the reservation outside of a group"
        )
        yield Finding("reservation-in-group", Severity.ERROR, key_path, message)
    elif pool.placement_group and not reservation.is_block:
        message = (
            f"{reservation.id} is in no placement group: its instances may be far apart, and then"
            " EC2 can't place them in the pool's group"
        )
        yield Finding("reservation-outside-group", Severity.WARNING, key_path, message)
