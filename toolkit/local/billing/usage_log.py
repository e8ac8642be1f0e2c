"""The log of what is metered: one line for each state of an instance, volume or file system.

The log outlives the daemon. Lines are only appended, and a line that a kill cut short is skipped.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

FILE = "usage.jsonl"
ENDS = frozenset({"shutting-down", "terminated", "deleted"})


class Kind(StrEnum):
    """A kind of resource that is metered."""

    INSTANCE = "instance"
    VOLUME = "volume"
    FILE_SYSTEM = "file-system"


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """A resource's state from a second on, with what its price depends on."""

    at: int  # epoch second, rounded down as in all that EC2 tells
    resource_id: str
    kind: Kind
    state: str  # EC2's for an instance; `available` or `deleted` for storage
    region: str
    zone: str
    type: str  # of instance or volume; the deployment type of a file system
    market: str = ""  # `spot` or `on-demand`, for an instance
    gib: int = 0  # for storage
    reason: str = ""  # EC2's code for the end of an instance
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageLog:
    """The log in a local cloud's state directory."""

    root: Path

    @property
    def path(self) -> Path:
        """Return the path of the log."""
        return self.root / FILE

    def append(self, events: Iterable[UsageEvent]) -> None:
        """Write events; they are with the kernel when this returns."""
        text = "".join(f"{json.dumps(asdict(event), sort_keys=True)}\n" for event in events)
        if not text:
            return
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self.path.open("a+b") as log:
            if log.tell() and not _ends_a_line(log):
                text = f"\n{text}"
            log.write(text.encode())

    def read(self) -> list[UsageEvent]:
        """Return all events, in the order in which they happened."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [event for event in map(_event, lines) if event is not None]

    def end_all(self, at: int) -> None:
        """End what is still metered; it is gone with its daemon."""
        self.append(_ends(self.read(), at))


def _ends_a_line(log: Any) -> bool:
    log.seek(-1, 2)
    return bool(log.read(1) == b"\n")


def _event(line: bytes) -> UsageEvent | None:
    try:
        value = json.loads(line)
        return UsageEvent(**{**value, "kind": Kind(value["kind"])})
    except (ValueError, TypeError, KeyError):
        return None


def _ends(events: Iterable[UsageEvent], at: int) -> Iterator[UsageEvent]:
    latest = {event.resource_id: event for event in events}
    for event in latest.values():
        if event.state not in ENDS:
            state = "terminated" if event.kind is Kind.INSTANCE else "deleted"
            fields = {**asdict(event), "at": max(at, event.at), "state": state, "reason": ""}
            yield UsageEvent(**{**fields, "kind": event.kind})
