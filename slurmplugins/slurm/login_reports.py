"""The login nodes' reports, as files on the shared filesystem.

    /shared/.toolkit/login-nodes/login-1.json

The folder is root's, so no user can write to it. A login node needs no right in AWS to report, and
the head none to ask.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from slurmplugins.model import json_input
from slurmplugins.model.login_node import LoginNodeReport
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def write(directory: Path, report: LoginNodeReport) -> None:
    """Replace the report of one login node. Raises OSError."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    text = json.dumps(asdict(report))
    write_atomically(directory / f"{report.name}.json", text.encode(), mode=0o644)


def read(directory: Path) -> tuple[LoginNodeReport, ...]:
    """Return all reports that can be read, by name."""
    paths = sorted(directory.glob("*.json"))
    return tuple(report for path in paths if (report := _parse(path)) is not None)


def _parse(path: Path) -> LoginNodeReport | None:
    try:
        value = json_input.loads(path.read_text(encoding="utf-8"))
        at = value["at"]
        if isinstance(at, bool) or not isinstance(at, int | float):
            return None
        texts = {name: str(value.get(name, "")) for name in ("instance_id", "host_key", "problem")}
        return LoginNodeReport(name=path.stem, at=float(at), **texts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
