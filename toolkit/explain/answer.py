"""An answer to "why?": a sentence, what it rests on, and what happens next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Try:
    """One launch that was tried: where, and what EC2 said of it."""

    at: float
    offering: str
    outcome: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """`next` is what will happen by itself, or what to do where nothing will."""

    subject: str
    verdict: str
    because: tuple[str, ...] = ()
    tried: tuple[Try, ...] = ()
    next: str = ""
    decisions: tuple[str, ...] = ()
    console: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def moment(at: float) -> str:
    """A time as answers show it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(seconds: float) -> str:
    """A length of time in its two largest units: 45 s, 12 m, 3 h 10 m, 2 d 4 h."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if not minutes:
        return f"{whole} s"
    if not hours:
        return f"{minutes} m"
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} m"


def told(decision: Mapping[str, Any]) -> str:
    """A line of the decision log in words."""
    at = decision.get("at")
    start = moment(float(at)) if isinstance(at, int | float) else "?"
    hidden = {"at", "level", "event", "program", "pid", "run", "trace"}
    rest = "  ".join(
        f"{key}={value}" for key, value in decision.items() if key not in hidden and value != ""
    )
    return f"{start}  {decision.get('event', '?')}  {rest}"[:400]
