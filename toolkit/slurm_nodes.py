"""Reads the nodes of slurm.conf for people's commands, from `scontrol show nodes --json`.

`read_states` takes the head node's faster answer, which has the same shape and fewer keys.

Only keys that are the same from data_parser v0.0.39 (23.02) on are read. Numbers may be
plain or {set, infinite, number}, states a word or a list of words: both are accepted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplugins.head import read_commands
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import SlurmAnswerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.head_runner import Runner

_SCONTROL = ("scontrol", "show", "nodes", "--json")
_GPU_GRES = re.compile(r"(?:^|,)gpu(?::[A-Za-z0-9_.-]+)*?:(\d+)")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as slurmctld sees it now."""

    name: str
    states: frozenset[str]  # in capitals, flags included
    cpus: int
    memory_mib: int
    gpus: int
    partitions: tuple[str, ...]
    instance_id: str
    instance_type: str
    address: str
    reason: str
    version: str = ""  # of its slurmd, once it has registered

    @property
    def base_state(self) -> str:
        """Return the state's word that isn't a flag: idle, allocated, mixed, …"""
        base_states = ("DOWN", "ALLOCATED", "MIXED", "IDLE", "FUTURE", "ERROR")
        return next((state for state in base_states if state in self.states), "UNKNOWN").lower()


@dataclass(frozen=True, slots=True)
class SlurmNodes:
    """The nodes of slurm.conf, and the head's own Slurm."""

    nodes: tuple[NodeInfo, ...]
    release: str = ""  # such as 25.11.8; "" where the answer has none


def read_nodes(runner: Runner) -> tuple[NodeInfo, ...]:
    """Read every node of slurm.conf.

    Raises SlurmAnswerError for an answer without them.
    """
    return read_slurm(runner).nodes


def read_slurm(runner: Runner) -> SlurmNodes:
    """Read every node of slurm.conf, and scontrol's own version.

    Raises SlurmAnswerError for an answer without nodes.
    """
    return _read(runner, _SCONTROL)


def read_states(runner: Runner) -> SlurmNodes:
    """Read what changes of every node: its name, states, reason and version.

    The head node asks pyslurm where it can, which knows no instance. The other fields may be empty.
    Raises SlurmAnswerError for an answer without nodes.
    """
    try:
        return _read(runner, read_commands.NODES)
    except (HeadCommandFailed, SlurmAnswerError):  # an older toolkit's head has no such program
        return _read(runner, _SCONTROL)


def _read(runner: Runner, argv: Sequence[str]) -> SlurmNodes:
    text = runner.run(argv)
    try:
        answer = json.loads(text)
        items = answer["nodes"]
    except (ValueError, KeyError, TypeError) as error:
        raise SlurmAnswerError("scontrol show nodes --json: no list of nodes") from error
    if not isinstance(items, list):
        raise SlurmAnswerError("scontrol show nodes --json: nodes is not a list")
    return SlurmNodes(tuple(parse_node(item) for item in items), _release(answer.get("meta")))


def _release(meta: object) -> str:
    slurm = _mapping(_mapping(meta).get("slurm") or _mapping(meta).get("Slurm"))
    return str(slurm.get("release") or "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: object) -> int | None:
    """Return an integer, plain or {set, infinite, number}; None if unset."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    return int(value) if isinstance(value, int | float | str) and str(value).strip() else None


def words(value: object) -> tuple[str, ...]:
    """Return the words of a state or list.

    Slurm writes it as one string or as several.
    """
    if isinstance(value, str):
        return tuple(part for part in re.split(r"[,+]", value) if part)
    return tuple(str(part) for part in value) if isinstance(value, list) else ()


def gpus(gres: str) -> int:
    """Return the number of GPUs in a node's GRES text.

    For example, `gpu:a10g:1(S:0-1),gpu:4` has 5.
    """
    return sum(int(count) for count in _GPU_GRES.findall(re.sub(r"\([^)]*\)", "", gres)))


def parse_node(item: Mapping[str, Any]) -> NodeInfo:
    """Parse one entry of `nodes`."""
    return NodeInfo(
        name=str(item.get("name", "")),
        states=frozenset(word.upper() for word in words(item.get("state"))),
        cpus=number(item.get("cpus")) or 0,
        memory_mib=number(item.get("real_memory")) or 0,
        gpus=gpus(str(item.get("gres") or "")),
        partitions=words(item.get("partitions")),
        instance_id=str(item.get("instance_id") or ""),
        instance_type=str(item.get("instance_type") or ""),
        address=str(item.get("address") or ""),
        reason=str(item.get("reason") or ""),
        version=str(item.get("version") or ""),
    )
