"""Finds attempted launches and losses in the decision log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.system.log_events import LogEvent
from toolkit.explain.answer import LaunchResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_SHOWN: Final = 12


def launch_results(decisions: Iterable[Mapping[str, Any]]) -> tuple[LaunchResult, ...]:
    """Return the latest attempted launches, oldest first."""
    results = [item for item in map(_launch_result, decisions) if item is not None]
    return tuple(results[-MAX_SHOWN:])


def last_refusal(decisions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the latest refusal of nodes, unless a launch followed."""
    refusal: Mapping[str, Any] | None = None
    for item in decisions:
        if item.get("event") in {LogEvent.NODES_GIVEN_BACK, LogEvent.NODES_NOT_GIVEN_BACK}:
            refusal = item
        elif item.get("event") in {LogEvent.INSTANCES_LAUNCHED, LogEvent.INSTANCES_REASSIGNED}:
            refusal = None
    return refusal


def last_loss(decisions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the latest node set DOWN, unless a launch followed."""
    loss: Mapping[str, Any] | None = None
    for item in decisions:
        if item.get("event") == LogEvent.ACTION_APPLIED and item.get("action") == "MarkDown":
            loss = item
        elif item.get("event") in {LogEvent.INSTANCES_LAUNCHED, LogEvent.INSTANCES_REASSIGNED}:
            loss = None
    return loss


def _launch_result(item: Mapping[str, Any]) -> LaunchResult | None:
    event, at = item.get("event"), item.get("at")
    time = float(at) if isinstance(at, int | float) else 0.0
    offering = str(item.get("offering") or item.get("key") or "")
    if event == LogEvent.INSTANCES_LAUNCHED:
        instances = item.get("instances")
        instances_text = (
            ", ".join(map(str, instances)) if isinstance(instances, list) else str(instances or "")
        )
        return LaunchResult(time, offering, "launched", instances_text)
    if event in {LogEvent.LAUNCH_FAILED, LogEvent.OFFERING_REFUSED}:
        code, message = str(item.get("code") or ""), str(item.get("message") or "")
        return LaunchResult(time, offering, code or str(item.get("slug") or "failed"), message)
    return None
