"""The life of every instance, for accounting: changes go to S3 and keep no pass waiting."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import CloudError
from slurmplugins.model.instance import (
    LAUNCH_FAILURE_CODES,
    ROLE_HEAD,
    SPOT_INTERRUPTION_CODES,
    EndCause,
    InstanceState,
)
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.cloud.port import ObjectStore
    from slurmplugins.model.instance import Instance
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


KEEP_SECONDS: Final = 2 * 3600.0

_NUMBERS: Final = frozenset({int, float})
_LATEST_TIME: Final = 1e11
"""Seconds since the epoch. A later time is damage."""

WRITERS: Final = 10
"""Entries written at once: boto3 keeps as many connections open."""

WRITE_SECONDS: Final = 30.0
"""Seconds that a pass writes entries. Jobs wait for the next pass, but no job waits for an entry.
"""


Stop = tuple[float, float | None]


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
    end_seen: bool = True
    """False: EC2 had forgotten the instance, and `ended_at` is when a pass noticed."""
    stops: tuple[Stop, ...] = ()
    """Each stop: when it stopped, and when EC2 started it again, None until then.
    `launched_at` and `running_at` are of its first start. EC2 bills no second of a stop.
    """


_NAMES: Final = tuple(item.name for item in fields(LedgerEntry))
_field_values = itemgetter(*_NAMES[:-2])  # an older head wrote no `end_seen`, and no `stops`
_TEXT_NAMES: Final = tuple(item.name for item in fields(LedgerEntry) if item.type == "str")


PREFIX: Final = "ledger/instances/"
"""The prefix of all entries in the cluster's bucket."""


def object_key(instance_id: str) -> str:
    """Return the key of an instance's entry in the cluster's bucket."""
    return f"{PREFIX}{instance_id}.json"


def update(
    known_entries: Mapping[str, LedgerEntry],
    instances: Iterable[Instance],
    end_causes: Mapping[str, EndCause],
    now: float,
    last_pass_at: float = 0.0,
) -> dict[str, LedgerEntry]:
    """Return the entries, brought up to date with the listed instances.

    A known fact is never dropped. An instance that is reassigned belongs to the other node from
    then on. An instance that is no longer listed ended unobserved, and its entry says so: a pass
    may notice it days later. If EC2 lists the instance again, it had not ended.

    No pass sees the head's own stop. Its last evidence is the last pass before its new start.
    """
    entries = dict(known_entries)
    listed_ids: set[str] = set()
    for instance in instances:
        listed_ids.add(instance.id)
        entry = entries.get(instance.id) or _new_entry(instance)
        entry = _updated_entry(entry, instance, end_causes.get(instance.id), now)
        # EC2 sets the launch time anew at each start.
        if entry.launched_at != instance.launched_at or instance.state.stopped:
            entry = _with_stops(entry, instance, now, last_pass_at)
        entries[instance.id] = entry
    for instance_id, entry in known_entries.items():
        if instance_id not in listed_ids and entry.ended_at is None:
            cause = end_causes.get(instance_id, EndCause.UNKNOWN)
            entries[instance_id] = replace(
                entry, ended_at=now, end_cause=cause.value, end_seen=False
            )
    return entries


def merge(entry: LedgerEntry, stored_entry: LedgerEntry | None) -> LedgerEntry:
    """Add the facts of a stored entry that our state has lost.

    An earlier pass wrote the entry, and the state file was lost since.
    """
    if stored_entry is None:
        return entry
    if not stored_entry.end_seen:
        # EC2 lists the instance now, so a new entry knows more of its end.
        stored_entry = replace(stored_entry, ended_at=None, end_cause=None)
    cause = stored_entry.end_cause
    if cause in (None, EndCause.UNKNOWN.value):
        cause = entry.end_cause or cause
    has_restarted = 0 < stored_entry.launched_at < entry.launched_at
    return replace(
        entry,
        node=entry.node or stored_entry.node,
        launched_at=stored_entry.launched_at if has_restarted else entry.launched_at,
        stops=stored_entry.stops or entry.stops,
        running_at=entry.running_at if stored_entry.running_at is None else stored_entry.running_at,
        ended_at=entry.ended_at if stored_entry.ended_at is None else stored_entry.ended_at,
        end_cause=cause,
    )


def without_forgotten(entries: Mapping[str, LedgerEntry], now: float) -> dict[str, LedgerEntry]:
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
    value = {name: getattr(entry, name) for name in _NAMES}
    if not entry.stops:  # of nearly all instances
        del value["stops"]
    return value


def from_json(value: Any) -> LedgerEntry | None:
    """Read an entry; None for anything else."""
    try:
        stops = tuple(map(_stop, value["stops"])) if "stops" in value else ()
        entry = LedgerEntry(*(*_field_values(value), value.get("end_seen", True), stops))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    texts = [getattr(entry, name) for name in _TEXT_NAMES]
    times = [
        moment
        for moment in (entry.launched_at, entry.running_at, entry.ended_at)
        if moment is not None
    ]
    # Not `finite`, which would be half of the cost of reading ten thousand entries.
    times_are_valid = all(
        type(moment) in _NUMBERS and abs(moment) < _LATEST_TIME for moment in times
    )
    texts_are_valid = all(type(text_value) is str for text_value in texts)
    return entry if times_are_valid and texts_are_valid and type(entry.end_seen) is bool else None


def _stop(value: Any) -> Stop:
    """Read a stop. Raises TypeError or ValueError for anything else."""
    stopped_at, started_at = value
    for moment in (stopped_at, stopped_at if started_at is None else started_at):
        if type(moment) not in _NUMBERS or not abs(moment) < _LATEST_TIME:
            raise ValueError(moment)
    return stopped_at, started_at


def _with_stops(
    entry: LedgerEntry, instance: Instance, now: float, last_pass_at: float
) -> LedgerEntry:
    """Return the entry with a stop that began or ended."""
    if not entry.launched_at:  # EC2's first answer had no launch time
        return replace(entry, launched_at=instance.launched_at)
    *earlier, (stopped_at, started_at) = entry.stops or ((0.0, entry.launched_at),)
    if instance.state.stopped:
        new_stops = () if started_at is None else ((_moment_of_stop(instance, now), None),)
        return replace(entry, stops=(*entry.stops, *new_stops))
    if not instance.state.live or instance.launched_at <= (started_at or stopped_at):
        return entry
    if started_at is None:
        return replace(entry, stops=(*earlier, (stopped_at, instance.launched_at)))
    last_seen_at = max(last_pass_at, entry.running_at or 0.0, started_at)
    if last_seen_at >= instance.launched_at:
        return entry  # an older head saw the start: nobody knows the stop, and the report says so
    return replace(entry, stops=(*entry.stops, (last_seen_at, instance.launched_at)))


def _moment_of_stop(instance: Instance, now: float) -> float:
    """Return EC2's moment of a stop, else this pass's.

    A pass may be the first for hours.
    """
    moment = instance.stopped_at
    return moment if moment is not None and instance.launched_at <= moment <= now else now


def _new_entry(instance: Instance) -> LedgerEntry:
    is_head = instance.role == ROLE_HEAD
    return LedgerEntry(
        instance_id=instance.id,
        node="head" if is_head else (instance.node or ""),
        pool="head" if is_head else instance.pool,
        partition=instance.partition,
        attempt=instance.attempt,
        type=instance.type,
        zone=instance.zone,
        lifecycle=instance.lifecycle.value,
        launched_at=instance.launched_at,
        price=instance.price,
    )


def _updated_entry(
    entry: LedgerEntry, instance: Instance, decided_cause: EndCause | None, now: float
) -> LedgerEntry:
    if not entry.end_seen:
        entry = replace(entry, ended_at=None, end_cause=None, end_seen=True)
    # A fleet's instances are listed before they are told their nodes.
    if instance.node not in {None, entry.node} and (instance.state.live or not entry.node):
        entry = replace(
            entry, node=instance.node or "", pool=instance.pool, partition=instance.partition
        )
    if entry.running_at is None and instance.state is InstanceState.RUNNING:
        entry = replace(entry, running_at=now)
    if not instance.state.terminated:
        return entry
    if entry.ended_at is None:
        entry = replace(entry, ended_at=instance.ended_at or now)
    if entry.end_cause in (None, EndCause.UNKNOWN.value):
        entry = replace(entry, end_cause=_end_cause(entry, instance, decided_cause).value)
    return entry


def _end_cause(entry: LedgerEntry, instance: Instance, decided_cause: EndCause | None) -> EndCause:
    if instance.end_code in SPOT_INTERRUPTION_CODES:
        return EndCause.INTERRUPTION
    if instance.end_code in LAUNCH_FAILURE_CODES and entry.running_at is None:
        return EndCause.LAUNCH_FAILED
    return decided_cause or EndCause.UNKNOWN


class LedgerWriter:
    """Writes changed entries to the cluster's bucket."""

    def __init__(self, store: ObjectStore, clock: Clock, log: Log) -> None:
        self._store = store
        self._clock = clock
        self._log = log

    def write(
        self, written_entries: Mapping[str, LedgerEntry], entries: Mapping[str, LedgerEntry]
    ) -> dict[str, LedgerEntry]:
        """Write changed entries; return the bucket's content now.

        An entry is left to the next pass if it could not be written, or not in time. So is the rest
        after a first sign that the bucket does not answer. Safe to repeat.
        """
        changed_keys = [key for key, entry in entries.items() if written_entries.get(key) != entry]
        deadline = self._clock.monotonic() + WRITE_SECONDS
        outages: list[CloudError] = []

        def write_entry(key: str) -> LedgerEntry | None:
            if outages or self._clock.monotonic() > deadline:
                return None
            try:
                return self._put(entries[key], new=key not in written_entries)
            except CloudError as error:
                self._log.warning(LogEvent.LEDGER_NOT_WRITTEN, instance=key, message=error.message)
                if error.retryable:
                    outages.append(error)
                return None

        results = WorkerPool(WRITERS).map(write_entry, changed_keys)
        pairs = zip(changed_keys, results, strict=True)
        return {**written_entries, **{key: entry for key, entry in pairs if entry is not None}}

    def _put(self, entry: LedgerEntry, *, new: bool) -> LedgerEntry:
        key = object_key(entry.instance_id)
        if new:
            if self._store.create(key, to_json(entry)):
                return entry
            # An earlier pass wrote it, and died before it could save, or its state is lost.
            entry = merge(entry, from_json(self._store.get(key)))
        self._store.put(key, to_json(entry))
        return entry
