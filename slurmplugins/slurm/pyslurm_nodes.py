"""Print the nodes that pyslurm reads, in the shape of `scontrol show nodes --json`.

    python3 -P -s slurmplugins/slurm/pyslurm_nodes.py

It is a program, and imports nothing of ours: libslurm may end the whole process. It prints nothing
unless all of the answer is what scontrol would say. The differences of pyslurm 25.11 that it looks
for are in docs/adr/0033.

Exit code UNREACHABLE says that slurmctld did not answer: scontrol would wait in vain as well. After
any other failure scontrol is asked.
"""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    class PyslurmNode(Protocol):
        """A node of pyslurm's, as far as it is read here. A text that is not there is None."""

        name: str
        state: str
        reason: str | None
        reason_time: int | None
        address: str | None
        slurm_version: str | None
        allocated_cpus: int
        allocated_tres: Mapping[str, str]

    class PyslurmNodes(Protocol):
        def values(self) -> Iterable[PyslurmNode]: ...

    class NodesClass(Protocol):
        def load(self) -> PyslurmNodes: ...

    class PyslurmConfig(Protocol):
        version: str | None

    class ConfigClass(Protocol):
        def load(self) -> PyslurmConfig: ...

    class PyslurmController(Protocol):
        @property
        def Config(self) -> ConfigClass: ...  # noqa: N802 - pyslurm's name

    class Pyslurm(Protocol):
        """The module pyslurm, as far as it is used here."""

        __version__: str

        @property
        def Nodes(self) -> NodesClass: ...  # noqa: N802 - pyslurm's name

        @property
        def slurmctld(self) -> PyslurmController: ...


SERIES = "25.11"
"""The one series whose pyslurm was compared with scontrol."""

STATES = frozenset(
    {
        "ALLOCATED", "BLOCKED", "CLOUD", "COMPLETING", "DOWN", "DRAIN", "DYNAMIC_FUTURE",
        "DYNAMIC_NORM", "ERROR", "EXTERNAL", "FAIL", "FUTURE", "IDLE", "INVALID_REG", "MAINTENANCE",
        "MIXED", "NOT_RESPONDING", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP",
        "POWER_DOWN", "POWER_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "RESUME",
        "UNKNOWN",
    }
)  # fmt: skip
"""Words that Slurm's text form and its JSON have in common. `?` stands for a flag without a word
in text (`node_state_flags` in slurm_protocol_defs.c, `NODE_STATES` in data_parser/v0.0.44)."""


UNREACHABLE = 75
"""EX_TEMPFAIL of sysexits.h."""

_UNREACHABLE_ERRORS = ("connect failure", "timed out")
"""Parts of Slurm's messages for a slurmctld that is away, and for one that hangs."""

IMPORT_SECONDS = 5
"""`import pyslurm` asks nobody. Without a slurm.conf it waits for a minute."""


class Mismatch(Exception):  # noqa: N818 - the name tells the event
    """pyslurm does not say what scontrol would say."""


def answer(pyslurm: Pyslurm) -> dict[str, object]:
    """Return all nodes, Slurm's release and pyslurm's own version.

    Raises Mismatch, and whatever pyslurm raises.
    """
    _check_series("pyslurm", pyslurm.__version__)
    release = pyslurm.slurmctld.Config.load().version or ""
    _check_series("slurmctld", release)
    nodes = [_record(node) for node in pyslurm.Nodes.load().values()]
    if not nodes:
        raise Mismatch("pyslurm lists no node")
    return {
        "nodes": nodes,
        "meta": {"slurm": {"release": release}},
        "pyslurm": pyslurm.__version__,
    }


def _check_series(name: str, version: str) -> None:
    if ".".join(version.split(".")[:2]) != SERIES:
        raise Mismatch(f"{name} is {version or 'of no version'}, and only {SERIES} was compared")


def _record(node: PyslurmNode) -> dict[str, object]:
    """Return a node as scontrol's JSON has it.

    Raises Mismatch, or UnicodeDecodeError for a text that is not UTF-8.
    """
    states = node.state.split("+")
    if not STATES.issuperset(states):
        raise Mismatch(f"node {node.name}: state {node.state}")
    if node.allocated_tres and not node.allocated_cpus and "MIXED" not in states:
        raise Mismatch(f"node {node.name}: scontrol counts it as MIXED")
    if node.reason is None and node.reason_time:
        raise Mismatch(f"node {node.name}: it has a time of a reason, and no reason")
    return {
        "name": node.name,
        "state": states,
        "reason": node.reason or "",
        "address": node.address or "",
        "version": node.slurm_version or "",
    }


def load() -> Pyslurm:
    """Import pyslurm. The process ends if that takes longer than IMPORT_SECONDS."""
    signal.alarm(IMPORT_SECONDS)
    module = import_module("pyslurm")
    signal.alarm(0)
    return cast("Pyslurm", module)


def main() -> None:
    try:
        text = json.dumps(answer(load()))
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller knows what to do
        if any(part in str(error) for part in _UNREACHABLE_ERRORS):
            sys.stderr.write(f"{error}\n")
            sys.exit(UNREACHABLE)
        sys.exit(f"{type(error).__name__}: {error}")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
