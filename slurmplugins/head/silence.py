"""The silence of the head, judged by the last pass of reconcile. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slurmplugins.reconciler.pass_state import LastPass

OLDEST_PASS: Final = 360.0
"""Seconds since the start of the last pass, which may take 300 s."""


def silence_reason(last_pass: LastPass, now: float) -> str:
    """Return why the head gives no heartbeat; empty if it works."""
    if last_pass.blocked_by:
        return f"reconcile is blocked: {last_pass.blocked_by}"
    if not last_pass.at:
        return "reconcile has not run yet"
    if now - last_pass.at > OLDEST_PASS:
        return f"reconcile has not run for {now - last_pass.at:.0f} s"
    return ""
