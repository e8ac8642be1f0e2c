"""An answer to "why?": the state, the evidence, and the next event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """An attempted launch: its offering, and EC2's answer."""

    at: float  # epoch seconds
    offering: str
    outcome: str
    said: str = ""  # EC2's message, or the ids of launched instances


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer about one job or node."""

    subject: str
    verdict: str
    because: tuple[str, ...] = ()
    tried: tuple[LaunchResult, ...] = ()
    next: str = ""  # the next event, or advice if none will come by itself
    decisions: tuple[str, ...] = ()  # lines of the decision log
    console: tuple[str, ...] = ()  # the end of an instance's console
    unread: tuple[str, ...] = ()  # sources that could not be read


def format_time(at: float) -> str:
    """Return a time as people read it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_duration(seconds: float) -> str:
    """Return a duration in its largest units, such as `12 m`.

    The others are 45 s, 3 h 10 m, 2 d 4 h.
    """
    total_seconds = max(int(seconds), 0)
    minutes, hours, days = total_seconds // 60, total_seconds // 3600, total_seconds // 86_400
    if not minutes:
        return f"{total_seconds} s"
    if not hours:
        return f"{minutes} m"
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} m"


def format_decision(decision: Mapping[str, Any]) -> str:
    """Return an entry of the decision log as a line."""
    at = decision.get("at")
    start = format_time(float(at)) if isinstance(at, int | float) else "?"
    hidden = {"at", "level", "event", "program", "pid", "run", "trace"}
    field_text = "  ".join(
        f"{key}={value}" for key, value in decision.items() if key not in hidden and value != ""
    )
    return f"{start}  {decision.get('event', '?')}  {field_text}"[:400]
