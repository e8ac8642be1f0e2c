"""SLURM_RESUME_FILE in every known shape.

22.05 wrote `{"jobs": [{"job_id", "nodes"}], "all_nodes"}`; since 23.02 it is `nodes_resume` and
`all_nodes_resume`. Unknown keys are left alone, since every release adds some. What a job's owner
can write (features, extra) is not read at all; the partition only picks a policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import json_input
from slurmplugins.model.hostlist import expand
from slurmplugins.model.launch import JobRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurmplugins.model.hostlist import NodeName

MAX_BYTES: Final = 64 * 1024 * 1024
"""Far above what 20,000 jobs make; stops a mistaken file from filling memory."""

MAX_NAMES: Final = 2_000_000
"""Names in all jobs together, over which the rest of the file is not read."""

MAX_JOB_ID: Final = 2**32

_LONGEST: Final = 20
"""Digits of a job's number that is written as text."""


def asks(
    content: bytes | None, hostlist: str, odd: list[str] | None = None
) -> tuple[JobRequest, ...]:
    """Which nodes are wanted, by job, from the resume file and ResumeProgram's argument.

    A node is brought by exactly one ask: that of the first job that lists it. The asks of others
    that wait for it have it as `shared`. Nodes of the argument that no job lists follow as asks
    without a job, one each, so that one can fail alone. An absent, unreadable or odd file therefore
    still gets every node launched. What is no name of ours in the argument goes to `odd`, and so do
    the largest ranges of an argument that names too many.
    """
    wanted = dict.fromkeys(expand(hostlist, odd=[] if odd is None else odd), True)
    found = tuple(_jobs(content))
    if not hostlist:
        wanted = {node: True for _, nodes, _ in found for node in nodes}
    out: list[JobRequest] = []
    brought: set[NodeName] = set()
    for job, nodes, partition in found:
        mine = tuple([node for node in nodes if wanted.pop(node, False)])
        shared = tuple([node for node in nodes if node in brought]) if brought else ()
        brought.update(mine)
        if mine or shared:
            out.append(JobRequest(job, mine, partition, shared))
    out.extend(JobRequest(None, (node,)) for node in wanted)
    return tuple(out)


def _jobs(content: bytes | None) -> Iterable[tuple[int | None, tuple[NodeName, ...], str]]:
    """Each entry's job, nodes and partition. One whose number can't be read has nodes all the same:
    they are one job's, all or nothing.
    """
    left = MAX_NAMES
    for entry in _entries(content):
        nodes = entry.get("nodes_resume", entry.get("nodes"))
        partition = entry.get("partition")
        if not isinstance(nodes, str):
            continue
        # What is no name of ours is another tool's.
        named = expand(nodes, odd=[])
        left -= len(named)
        if left < 0:
            return  # jobs that share nodes repeat them; no honest file repeats so many
        yield _number(entry.get("job_id")), named, partition if isinstance(partition, str) else ""


def _number(value: object) -> int | None:
    """A job's number: plain, as text, or as newer data parsers write it."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < _LONGEST:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value < MAX_JOB_ID else None


def _entries(content: bytes | None) -> list[dict[str, Any]]:
    if not content or len(content) > MAX_BYTES:
        return []
    try:
        data = json_input.loads(content)
    except ValueError:
        return []
    jobs = data.get("jobs") if isinstance(data, dict) else None
    return [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
