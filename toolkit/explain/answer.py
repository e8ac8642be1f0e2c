"""An answer to "why?": the state, the evidence, and the next event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Try:
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
    tried: tuple[Try, ...] = ()
    next: str = ""  # the next event, or advice if none will come by itself
    decisions: tuple[str, ...] = ()  # lines of the decision log
    console: tuple[str, ...] = ()  # the end of an instance's console
    unread: tuple[str, ...] = ()  # sources that could not be read


def moment(at: float) -> str:
    """Return a time as answers show it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(seconds: float) -> str:
    """Return a duration in its largest units, such as `12 m`.

    The others are 45 s, 3 h 10 m, 2 d 4 h.
    """
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if not minutes:
        return f"{whole} s"
    if not hours:
        return f"{minutes} m"
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} m"


def told(decision: Mapping[str, Any]) -> str:
    """Return an entry of the decision log as a line."""
    at = decision.get("at")
    start = moment(float(at)) if isinstance(at, int | float) else "?"
    hidden = {"at", "level", "event", "program", "pid", "run", "trace"}
    rest = "  ".join(
        f"{key}={value}" for key, value in decision.items() if key not in hidden and value != ""
    )
    return f"{start}  {decision.get('event', '?')}  {rest}"[:400]
