"""The silence of the head, judged by reconcile's last pass and the data volume. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.model import data_volume

if TYPE_CHECKING:
    from slurmplugins.model.data_volume import FreeShares
    from slurmplugins.reconciler.pass_state import LastPass

OLDEST_PASS: Final = 360.0
"""Seconds since the start of the last pass, which may take 300 s."""


def silence_reason(last_pass: LastPass, free: FreeShares | None, now: float) -> str:
    """Return why the head gives no heartbeat; empty if it works.

    `free` is of the data volume; None: it can't be read. slurmctld runs on with a full one, but
    its next start finds an old state.
    """
    if last_pass.blocked_by:
        return f"reconcile is blocked: {last_pass.blocked_by}"
    if not last_pass.at:
        return "reconcile has not run yet"
    if now - last_pass.at > OLDEST_PASS:
        return f"reconcile has not run for {now - last_pass.at:.0f} s"
    if free is None:
        return f"{data_volume.PATH} can't be read"
    return data_volume.shortage(free)
