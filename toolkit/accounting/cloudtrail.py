"""CloudTrail's event files: starts, stops and ends of instances that no pass saw.

A file has `{"Records": […]}`, as CloudTrail delivers it to S3, plain or gzipped. The
answer of `aws cloudtrail lookup-events` has `{"Events": […]}`. Five events are read:
RunInstances, StartInstances, StopInstances, TerminateInstances and BidEvictedEvent. The
last one is EC2's word for an interruption. Their field names are those of the
CloudTrail and EC2 user guides.

The event tells when EC2 was asked. EC2's own answer to a pass is therefore kept where it
is known; CloudTrail speaks where nobody saw an end, or a stop. What disagrees is told with
both values. A call that EC2 refused has
an error code, and is none.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model.instance import EndCause
from toolkit.accounting.disagreements import differ
from toolkit.accounting.errors import AccountingError
from toolkit.accounting.phrases import moment
from toolkit.accounting.set_aside import SetAside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from toolkit.accounting.instances import Instance, Stop

LARGEST_FILE: Final = 1 << 30
"""Bytes of a file's content. CloudTrail's are some megabytes: a larger one is damage."""

_SOURCE: Final = "ec2.amazonaws.com"
_EVICTED: Final = "BidEvictedEvent"
_RUN, _START, _STOP = "RunInstances", "StartInstances", "StopInstances"
_TERMINATE: Final = "TerminateInstances"
_CALLS: Final = frozenset({_RUN, _START, _STOP, _TERMINATE})
INSTANCE_ID: Final = re.compile(r"i-[A-Za-z0-9-]{1,40}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


_UNREADABLE: Final = (
    AttributeError,
    EOFError,
    KeyError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What a damaged file or record raises."""


@dataclass(frozen=True, slots=True, order=True)
class TrailEvent:
    """An event of one instance."""

    second: int
    name: str  # CloudTrail's eventName


@dataclass(frozen=True, slots=True)
class Trail:
    """The events of each instance in their order, and the records that can't be read."""

    events: Mapping[str, tuple[TrailEvent, ...]] = field(default_factory=dict)
    set_aside: tuple[SetAside, ...] = ()

    def completed(self, instance: Instance) -> Instance:
        """Return the instance with stops and an end that nobody saw."""
        instance = self.with_stops(instance)
        ends = self._ends(instance)
        if not ends or (instance.end_seen and instance.ended is not None):
            return instance
        end_cause = instance.end_cause
        if any(item.name == _EVICTED for item in ends):
            end_cause = EndCause.INTERRUPTION
        ended = max(ends[0].second, instance.launched)
        return replace(instance, ended=ended, end_cause=end_cause, end_seen=True)

    def with_stops(self, instance: Instance) -> Instance:
        """Return the instance with unseen stops, and others' exact times."""
        events = self.events.get(instance.instance_id, ())
        if not events:
            return instance
        return replace(instance, stops=_with_exact_stops(instance.stops, list(_stops(events))))

    def disagreements(self, instance: Instance, source: str, end_source: str) -> Iterator[str]:
        """Yield what CloudTrail says differently of an instance.

        It must not be completed yet. `source` tells its launch and stops, and `end_source` its end.
        """
        events = self.events.get(instance.instance_id, ())
        name = instance.instance_id
        # A request that was sent again is in CloudTrail twice.
        launches = [item.second for item in events if item.name == _RUN]
        if launches and all(differ(instance.launched, second) for second in launches):
            yield (
                f"{name}: launched {moment(instance.launched)} by {source},"
                f" {moment(launches[0])} by CloudTrail; billed from the former"
            )
        yield from _differing_stops(instance, list(_stops(events)), source)
        ends = self._ends(instance)
        if not ends or not instance.end_seen or instance.ended is None:
            return
        if differ(instance.ended, ends[0].second):
            yield (
                f"{name}: ended {moment(instance.ended)} by {end_source},"
                f" {moment(ends[0].second)} by CloudTrail; billed to the former"
            )
        if any(item.name == _EVICTED for item in ends) and not instance.interrupted:
            yield (
                f"{name}: end cause {instance.end_cause or EndCause.UNKNOWN} by {end_source},"
                f" {EndCause.INTERRUPTION} by CloudTrail; billed as the former"
            )

    def _ends(self, instance: Instance) -> list[TrailEvent]:
        events = self.events.get(instance.instance_id, ())
        return [item for item in events if item.name in (_TERMINATE, _EVICTED)]


def _stops(events: Iterable[TrailEvent]) -> Iterator[Stop]:
    stopped_at: int | None = None
    for event in events:
        if event.name == _STOP and stopped_at is None:
            stopped_at = event.second
        elif event.name == _START and stopped_at is not None:
            yield stopped_at, event.second
            stopped_at = None
    if stopped_at is not None:
        yield stopped_at, None


def _with_exact_stops(known: Sequence[Stop], exact: Sequence[Stop]) -> tuple[Stop, ...]:
    """Return all stops, CloudTrail's in place of the ones that they meet."""
    exact = [stop if stop[1] is not None else _with_start(stop, known) for stop in exact]
    others = [stop for stop in known if not any(_meet(stop, item) for item in exact)]
    return tuple(sorted((*others, *exact), key=lambda stop: stop[0]))


def _with_start(stop: Stop, known: Iterable[Stop]) -> Stop:
    """Return an open stop with the start that a pass saw.

    The files may lack the event.
    """
    starts = [start for _, start in known if start is not None and start >= stop[0]]
    return stop[0], min(starts, default=None)


def _differing_stops(instance: Instance, exact: Sequence[Stop], source: str) -> Iterator[str]:
    for stopped_at, started_at in instance.stops:
        met = next((item for item in exact if _meet((stopped_at, started_at), item)), None)
        if met is None:
            continue
        for what, former, latter in (
            ("stopped", stopped_at, met[0]),
            ("started", started_at, met[1]),
        ):
            if differ(former, latter):
                yield (
                    f"{instance.instance_id}: {what} {moment(former)} by {source},"
                    f" {moment(latter)} by CloudTrail; billed by the latter"
                )


def _meet(first: Stop, second: Stop) -> bool:
    return (second[1] is None or first[0] <= second[1]) and (
        first[1] is None or second[0] <= first[1]
    )


def read(paths: Iterable[Path]) -> Trail:
    """Read files, and the `.json` and `.json.gz` files below folders.

    A record that can't be read is set aside, and so is a file. Raises AccountingError if a
    path is not there.
    """
    events: dict[str, set[TrailEvent]] = defaultdict(set)
    set_aside = []
    for path in _files(paths):
        try:
            records = _records(json.loads(_content(path)))
        except _UNREADABLE as error:
            set_aside.append(SetAside(str(path), f"no CloudTrail file ({type(error).__name__})"))
            continue
        for number, record in enumerate(records, start=1):
            try:
                for instance_id, event in _events(record):
                    events[instance_id].add(event)
            except _UNREADABLE:
                reason = "no record of CloudTrail"
                set_aside.append(SetAside(f"record {number} of {path}", reason))
    return Trail(
        {key: tuple(sorted(items)) for key, items in events.items()},
        tuple(replace(item, has_unknown_cost=False) for item in set_aside),
    )


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted((*path.rglob("*.json"), *path.rglob("*.json.gz")))
        elif path.exists():
            yield path
        else:
            raise AccountingError(f"--cloudtrail {path}: there is no such file or folder")


def _content(path: Path) -> bytes:
    """Return a file's bytes. Raises ValueError if there are too many."""
    with path.open("rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if is_compressed else path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"more than {LARGEST_FILE} bytes")
    return content


def _records(value: Any) -> list[Any]:
    """Return the records of a file.

    Raises ValueError if it has none of the two forms.
    """
    if isinstance(value, dict) and isinstance(value.get("Records"), list):
        return list(value["Records"])
    if isinstance(value, dict) and isinstance(value.get("Events"), list):
        return [json.loads(item["CloudTrailEvent"]) for item in value["Events"]]
    raise ValueError("neither Records nor Events")


def _events(record: Mapping[str, Any]) -> Iterator[tuple[str, TrailEvent]]:
    """Yield the events of a record.

    One of another service or call has none.
    """
    name = record["eventName"]
    if record["eventSource"] != _SOURCE or record.get("errorCode"):
        return
    if name == _EVICTED:
        ids = record["serviceEventDetails"]["instanceIdSet"]
    elif name in _CALLS:
        ids = [item["instanceId"] for item in record["responseElements"]["instancesSet"]["items"]]
    else:
        return
    if not _TIME.fullmatch(record["eventTime"]):
        raise ValueError(record["eventTime"])
    second = int(datetime.fromisoformat(record["eventTime"]).astimezone(UTC).timestamp())
    for instance_id in ids:
        if not INSTANCE_ID.fullmatch(instance_id):
            raise ValueError(instance_id)
        yield instance_id, TrailEvent(second, name)
