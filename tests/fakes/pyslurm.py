"""A stand-in for pyslurm, of captured answers or of others in their shape.

It has no attribute that the captured nodes lack.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

CAPTURED = Path(__file__).parents[1] / "golden/slurm/pyslurm-25.11"
_PACKAGE = """\
import sys
sys.path.insert(0, {checkout!r})
from tests.fakes.pyslurm import captured
globals().update(vars(captured()))
"""


class NodeInLatin1(SimpleNamespace):
    """A node whose reason is not UTF-8."""

    def __getattribute__(self, name: str) -> Any:
        return b"caf\xe9".decode() if name == "reason" else super().__getattribute__(name)


def module(nodes: Sequence[object], version: str = "25.11.2", release: str = "25.11.7") -> Any:
    """Return a module with these nodes."""
    by_name = dict(enumerate(nodes))
    config = SimpleNamespace(version=release)
    return SimpleNamespace(
        __version__=version,
        Nodes=SimpleNamespace(load=lambda: by_name),
        slurmctld=SimpleNamespace(Config=SimpleNamespace(load=lambda: config)),
    )


@functools.cache
def captured_rows() -> tuple[dict[str, Any], ...]:
    """Return the attributes of the captured nodes.

    Three that the capture left out are as scontrol said of the same nodes.
    """
    answer = json.loads((CAPTURED / "pyslurm.json").read_text())
    of_scontrol = json.loads((CAPTURED / "scontrol-nodes.json").read_text())["nodes"]
    nodes = {node["name"]: node for node in of_scontrol}
    rows = [{**_more(nodes[row["name"]]), **row} for row in answer["nodes"]]
    assert {name for row in rows for name in row} <= {*answer["node_attributes"]}
    return tuple(rows)


def _more(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "reason_time": node["reason_changed_at"]["number"] or None,
        "allocated_cpus": node["alloc_cpus"],
        "allocated_tres": dict(item.split("=") for item in node["tres_used"].split(",") if item),
    }


def captured() -> Any:
    """Return a module that answers as pyslurm did when it was captured."""
    nodes = [SimpleNamespace(**row) for row in captured_rows()]
    version = json.loads((CAPTURED / "pyslurm.json").read_text())["version"]
    release = (CAPTURED / "version.txt").read_text().split()[-1]
    return module(nodes, version, release)


def install(folder: Path, code: str = "") -> None:
    """Write a module pyslurm, of the captured answers or of this code."""
    checkout = str(Path(__file__).parents[2])
    (folder / "pyslurm.py").write_text(code or _PACKAGE.format(checkout=checkout))
