"""Requests to jobs and to node agents, as files on the shared filesystem."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.model.instance import Notice


JobAttempt = tuple[int, int]
"""Job id and number of restarts. Together they identify one attempt of a job."""


def request_stop(
    directory: Path,
    attempt: JobAttempt,
    notice: Notice,
    *,
    node: str,
    instance_id: str,
    now: float,
) -> None:
    """Write a stop request into the directory that the job's workers read.

    Raises OSError. Safe to repeat.
    """
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


def remove_old_requests(directory: Path, before: float) -> None:
    """Remove stop requests last written before that time.

    Nodes call it as they boot. Several at once do no harm. Raises nothing.
    """
    try:
        paths = list(directory.glob("*.json"))
    except OSError:
        return
    for path in paths:
        with contextlib.suppress(OSError):  # another node was quicker
            if path.stat().st_mtime < before:
                path.unlink()


def request_registration(directory: Path, node: str, now: float) -> None:
    """Write a request into the directory that the node's agent reads.

    The agent then has slurmd register again. Raises OSError. Safe to repeat.
    """
    value = json.dumps({"node": node, "at": now}).encode()
    write_atomically(_registration_path(directory, node), value, mode=0o644)


def read_registration_request(directory: Path, node: str) -> str:
    """Return the content of the node's registration request, empty without one."""
    try:
        return _registration_path(directory, node).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def remove_registration_request(directory: Path, node: str) -> None:
    """Remove the node's registration request.

    If it can't be removed, the agent recognises it by its content.
    """
    with contextlib.suppress(OSError):
        _registration_path(directory, node).unlink()


def _registration_path(directory: Path, node: str) -> Path:
    return directory / f"register.{node}.json"
