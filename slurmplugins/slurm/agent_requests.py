"""Requests to a node's agent, as files on the shared filesystem."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.model.interruption import Notice


JobAttempt = tuple[int, int]
"""Job id and how often it was restarted: together they name one attempt."""


def request_stop(
    directory: Path,
    attempt: JobAttempt,
    notice: Notice,
    *,
    node: str,
    instance_id: str,
    now: float,
) -> None:
    """Leave the request where the job's workers look for it. Raises OSError."""
    job, restarts = attempt
    value = {
        "job_id": job,
        "restart_count": restarts,
        "cause": notice.kind.value,
        "node": node,
        "instance_id": instance_id,
        "deadline": notice.deadline,
        "at": now,
    }
    path = directory / f"{job}.{restarts}.json"
    write_atomically(path, json.dumps(value).encode(), mode=0o644)


def forget_requests(directory: Path, before: float) -> None:
    """Remove requests last written before that moment. Nodes do it as they boot, and several at
    once do no harm.
    """
    try:
        found = list(directory.glob("*.json"))
    except OSError:
        return
    for path in found:
        with contextlib.suppress(OSError):  # another node was quicker
            if path.stat().st_mtime < before:
                path.unlink()


def request_registration(directory: Path, node: str, now: float) -> None:
    """Leave the request where the node's agent looks for it. Raises OSError."""
    value = json.dumps({"node": node, "at": now}).encode()
    write_atomically(_registration_path(directory, node), value, mode=0o644)


def requested_registration(directory: Path, node: str) -> str:
    """Return the request's content, empty without one."""
    try:
        return _registration_path(directory, node).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def forget_registration(directory: Path, node: str) -> None:
    """Remove the request; one that can't be removed is known by its content."""
    with contextlib.suppress(OSError):
        _registration_path(directory, node).unlink()


def _registration_path(directory: Path, node: str) -> Path:
    return directory / f"register.{node}.json"
