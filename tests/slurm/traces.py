"""The traces of a local cloud on the host."""

from __future__ import annotations

import contextlib
from pathlib import Path

from toolkit.local.machines import cgroups
from toolkit.local.machines.layout import Layout


def host_traces(state: Path) -> dict[str, list[str]]:
    """Return the host's traces of the cloud in that directory, by kind.

    The kinds are mounts, network namespaces, control groups, loop devices and processes. Traces of
    other clouds are left out. The cloud sets nothing in the host's own network.
    """
    name = Layout(state).name
    rows = {
        "mount": Path("/proc/self/mountinfo").read_text().splitlines(),
        "netns": _names("/run/netns"),
        "loop": list(_loop_files()),
        # No walk through all groups: groups of others disappear meanwhile, and the walk would fail.
        "cgroup": [str(root / name) for root in cgroups.hierarchies() if (root / name).exists()],
        "ps": list(_arguments()),
    }
    return {
        kind: sorted(row for row in entries if f"{state}/" in row or name in row)
        for kind, entries in rows.items()
    }


def _names(directory: str) -> list[str]:
    try:
        return [path.name for path in Path(directory).iterdir()]
    except FileNotFoundError:
        return []


def _loop_files():
    """Yield the file behind each loop device."""
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            yield path.read_text()


def _arguments():
    """Yield the command line of every process; zombies have none."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
