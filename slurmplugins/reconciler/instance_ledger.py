"""The life of every instance, for accounting: changes go to S3 and keep no pass waiting."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import CloudError
from slurmplugins.model.instance import ROLE_HEAD, SPOT_TAKEN, EndCause, InstanceState
from slurmplugins.system.workers import Crew

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.cloud.port import ObjectStore
    from slurmplugins.model.instance import Instance
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


KEEP_SECONDS: Final = 2 * 3600.0

_NUMBERS: Final = frozenset({int, float})
_SANE: Final = 1e11
"""Seconds since the epoch. A later time is damage."""

WRITERS: Final = 10
"""Entries written at once: boto3 keeps as many connections open."""

SECONDS: Final = 30.0
"""Seconds that a pass writes entries. Jobs wait for the next pass, but no job waits for an entry.
"""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An instance's life, as accounting reads it. Field names are the ledger's."""

    instance_id: str
    node: str
    pool: str
    partition: str
    attempt: str
    type: str
    zone: str
    lifecycle: str
    launched_at: float
    price: str
    running_at: float | None = None
    ended_at: float | None = None
    end_cause: str | None = None


_NAMES: Final = tuple(item.name for item in fields(LedgerEntry))
_values = itemgetter(*_NAMES)
_WORDS: Final = tuple(item.name for item in fields(LedgerEntry) if item.type == "str")


def object_key(instance_id: str) -> str:
    """Return the key of an instance's entry in the cluster's bucket."""
    return f"ledger/instances/{instance_id}.json"


def update(
    known: Mapping[str, LedgerEntry],
    instances: Iterable[Instance],
    ended: Mapping[str, EndCause],
    now: float,
) -> dict[str, LedgerEntry]:
    """Return the entries, brought up to date with the listed instances.

    A known fact is never dropped. An instance that is reassigned belongs to the other node from
    then on. An instance that is no longer listed ended unobserved: the time at which we noticed is
    the best there is.
    """
    entries = dict(known)
    listed: set[str] = set()
    for machine in instances:
        listed.add(machine.id)
        before = entries.get(machine.id) or _new(machine)
        entries[machine.id] = _seen(before, machine, ended.get(machine.id), now)
    for instance_id, entry in known.items():
        if instance_id not in listed and entry.ended_at is None:
            cause = ended.get(instance_id, EndCause.UNKNOWN)
            entries[instance_id] = replace(entry, ended_at=now, end_cause=cause.value)
    return entries


def merge(ours: LedgerEntry, stored: LedgerEntry | None) -> LedgerEntry:
    """Add the facts of a stored entry that our state has lost.

    An earlier pass wrote the entry, and the state file was lost since.
    """
    if stored is None:
        return ours
    cause = stored.end_cause
    if cause in (None, EndCause.UNKNOWN.value):
        cause = ours.end_cause or cause
    return replace(
        ours,
        node=ours.node or stored.node,
        running_at=ours.running_at if stored.running_at is None else stored.running_at,
        ended_at=ours.ended_at if stored.ended_at is None else stored.ended_at,
        end_cause=cause,
    )


def worth_keeping(entries: Mapping[str, LedgerEntry], now: float) -> dict[str, LedgerEntry]:
    """Drop entries that EC2 has forgotten by now.

    EC2 lists terminated instances for about an hour. Older entries would only make the state
    larger.
    """
    return {
        key: entry
        for key, entry in entries.items()
        if entry.ended_at is None or now - entry.ended_at < KEEP_SECONDS
    }


def to_json(entry: LedgerEntry) -> dict[str, Any]:
    # asdict copies immutable values: at 10,000 instances a third of reconcile's time.
    return {name: getattr(entry, name) for name in _NAMES}


def from_json(value: Any) -> LedgerEntry | None:
    """Read an entry; None for anything else."""
    try:
        entry = LedgerEntry(*_values(value))
    except (KeyError, TypeError):
        return None
    words = [getattr(entry, name) for name in _WORDS]
    moments = [at for at in (entry.launched_at, entry.running_at, entry.ended_at) if at is not None]
    # Not `finite`, which would be half of the cost of reading ten thousand entries.
    sane = all(type(at) in _NUMBERS and abs(at) < _SANE for at in moments)
    return entry if sane and all(type(word) is str for word in words) else None


def _new(machine: Instance) -> LedgerEntry:
    head = machine.role == ROLE_HEAD
    return LedgerEntry(
        instance_id=machine.id,
        node="head" if head else (machine.node or ""),
        pool="head" if head else machine.pool,
        partition=machine.partition,
        attempt=machine.attempt,
        type=machine.type,
        zone=machine.zone,
        lifecycle=machine.lifecycle.value,
        launched_at=machine.launched_at,
        price=machine.price,
    )


def _seen(entry: LedgerEntry, machine: Instance, ended: EndCause | None, now: float) -> LedgerEntry:
    # A fleet's instances are listed before they are told their nodes.
    if machine.node not in {None, entry.node} and (machine.state.live or not entry.node):
        entry = replace(
            entry, node=machine.node or "", pool=machine.pool, partition=machine.partition
        )
    if entry.running_at is None and machine.state is InstanceState.RUNNING:
        entry = replace(entry, running_at=now)
    if not machine.state.over:
        return entry
    if entry.ended_at is None:
        entry = replace(entry, ended_at=machine.ended_at or now)
    if entry.end_cause in (None, EndCause.UNKNOWN.value):
        entry = replace(entry, end_cause=_cause(machine, ended).value)
    return entry


def _cause(machine: Instance, ended: EndCause | None) -> EndCause:
    if machine.end_code in SPOT_TAKEN:
        return EndCause.INTERRUPTION
    return ended or EndCause.UNKNOWN


class LedgerWriter:
    """Writes changed entries to the cluster's bucket."""

    def __init__(self, store: ObjectStore, clock: Clock, log: Log) -> None:
        self._store = store
        self._clock = clock
        self._log = log

    def write(
        self, before: Mapping[str, LedgerEntry], entries: Mapping[str, LedgerEntry]
    ) -> dict[str, LedgerEntry]:
        """Write changed entries; return the bucket's content now.

        An entry is left to the next pass if it could not be written, or not in time. So is the rest
        after a first sign that the bucket does not answer. Safe to repeat.
        """
        changed = [key for key, entry in entries.items() if before.get(key) != entry]
        until = self._clock.monotonic() + SECONDS
        silent: list[CloudError] = []

        def write(key: str) -> LedgerEntry | None:
            if silent or self._clock.monotonic() > until:
                return None
            try:
                return self._put(entries[key], new=key not in before)
            except CloudError as error:
                self._log.warning("ledger", instance=key, message=error.message)
                if error.retryable:
                    silent.append(error)
                return None

        results = Crew(WRITERS).map(write, changed)
        done = {key: item for key, item in zip(changed, results, strict=True) if item is not None}
        return {**before, **done}

    def _put(self, entry: LedgerEntry, *, new: bool) -> LedgerEntry:
        key = object_key(entry.instance_id)
        if new:
            if self._store.create(key, to_json(entry)):
                return entry
            # An earlier pass wrote it, and died before it could save, or its state is lost.
            entry = merge(entry, from_json(self._store.get(key)))
        self._store.put(key, to_json(entry))
        return entry
