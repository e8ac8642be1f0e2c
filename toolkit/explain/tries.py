"""Finds attempted launches and losses in the decision log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.system.decision_log import GIVEN_BACK, NOT_GIVEN_BACK
from toolkit.explain.answer import Try

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHOWN: Final = 12


def tries(decisions: Iterable[Mapping[str, Any]]) -> tuple[Try, ...]:
    """Return the latest attempted launches, oldest first."""
    found = [item for item in map(_try, decisions) if item is not None]
    return tuple(found[-SHOWN:])


def last_refusal(decisions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the latest refusal of nodes, unless a launch followed."""
    refusal: Mapping[str, Any] | None = None
    for item in decisions:
        if item.get("event") in {GIVEN_BACK, NOT_GIVEN_BACK}:
            refusal = item
        elif item.get("event") in {"launched", "given"}:
            refusal = None
    return refusal


def last_loss(decisions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the latest node set DOWN, unless a launch followed."""
    loss: Mapping[str, Any] | None = None
    for item in decisions:
        if item.get("event") == "node" and item.get("action") == "MarkDown":
            loss = item
        elif item.get("event") in {"launched", "given"}:
            loss = None
    return loss


def _try(item: Mapping[str, Any]) -> Try | None:
    event, at = item.get("event"), item.get("at")
    when = float(at) if isinstance(at, int | float) else 0.0
    offering = str(item.get("offering") or item.get("key") or "")
    if event == "launched":
        machines = item.get("machines")
        said = ", ".join(map(str, machines)) if isinstance(machines, list) else str(machines or "")
        return Try(when, offering, "launched", said)
    if event in {"launch failed", "offering refused"}:
        code, message = str(item.get("code") or ""), str(item.get("message") or "")
        return Try(when, offering, code or str(item.get("slug") or "failed"), message)
    return None
