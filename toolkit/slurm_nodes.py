"""Typed reads from `scontrol --json`.

Only keys that are the same from data_parser v0.0.39 (23.02) on are read. Numbers come plain or as
{set, infinite, number}, states as a word or a list of words: both are taken.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from toolkit.head_runner import SlurmAnswerError
from toolkit.slurm_api.model import JobInfo, NodeInfo, PartitionInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.head_runner import Runner

_GPU_GRES = re.compile(r"(?:^|,)gpu(?::[A-Za-z0-9_.-]+)*?:(\d+)")


class CliReader:
    """Reads through `scontrol`; the only reader that works from outside the head node."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Every node of slurm.conf."""
        return tuple(node(item) for item in self._items("nodes"))

    def jobs(self) -> tuple[JobInfo, ...]:
        """Every job that slurmctld still remembers."""
        return tuple(job(item) for item in self._items("jobs"))

    def partitions(self) -> tuple[PartitionInfo, ...]:
        """Every partition."""
        return tuple(partition(item) for item in self._items("partitions"))

    def _items(self, what: str) -> list[dict[str, Any]]:
        text = self._runner.run(["scontrol", "show", what, "--json"])
        try:
            items = json.loads(text)[what]
        except (ValueError, KeyError, TypeError) as error:
            raise SlurmAnswerError(f"scontrol show {what} --json: no list of {what}") from error
        if not isinstance(items, list):
            raise SlurmAnswerError(f"scontrol show {what} --json: {what} is not a list")
        return items


def number(value: object) -> int | None:
    """An integer that is written plain or as {set, infinite, number}; None where it isn't set."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    return int(value) if isinstance(value, int | float | str) and str(value).strip() else None


def words(value: object) -> tuple[str, ...]:
    """A state or a list that is written as one string or as several."""
    if isinstance(value, str):
        return tuple(part for part in re.split(r"[,+]", value) if part)
    return tuple(str(part) for part in value) if isinstance(value, list) else ()


def gpus(gres: str) -> int:
    """The GPUs in a node's GRES text, e.g. `gpu:a10g:1(S:0-1),gpu:4` → 5."""
    return sum(int(count) for count in _GPU_GRES.findall(re.sub(r"\([^)]*\)", "", gres)))


def node(item: Mapping[str, Any]) -> NodeInfo:
    """One entry of `nodes`."""
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
    )


def job(item: Mapping[str, Any]) -> JobInfo:
    """One entry of `jobs`; the first word of the state is the state, the rest are flags."""
    states = words(item.get("job_state"))
    return JobInfo(
        job_id=number(item.get("job_id")) or 0,
        name=str(item.get("name") or ""),
        user=str(item.get("user_name") or ""),
        account=str(item.get("account") or ""),
        partition=str(item.get("partition") or ""),
        state=states[0].upper() if states else "UNKNOWN",
        reason=str(item.get("state_reason") or ""),
        nodes=str(item.get("nodes") or ""),
        node_count=number(item.get("node_count")) or 0,
        restarts=number(item.get("restart_cnt")) or 0,
        submitted_at=number(item.get("submit_time")),
        started_at=number(item.get("start_time")),
        ended_at=number(item.get("end_time")),
        comment=str(item.get("comment") or ""),
        admin_comment=str(item.get("admin_comment") or ""),
    )


def partition(item: Mapping[str, Any]) -> PartitionInfo:
    """One entry of `partitions`."""
    nodes = item.get("nodes") or {}
    maximums = item.get("maximums") or {}
    state = words((item.get("partition") or {}).get("state"))
    return PartitionInfo(
        name=str(item.get("name", "")),
        up="UP" in {word.upper() for word in state},
        nodes=str(nodes.get("configured") or ""),
        node_count=number(nodes.get("total")) or 0,
        max_minutes=number(maximums.get("time")),
    )
