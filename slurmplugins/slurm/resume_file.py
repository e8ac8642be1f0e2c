"""The parser of SLURM_RESUME_FILE, in every known shape.

22.05 wrote `{"jobs": [{"job_id", "nodes"}], "all_nodes"}`. Since 23.02 the keys are `nodes_resume`
and `all_nodes_resume`. Unknown keys are ignored, since every release adds some. Fields that a job's
owner can write (features, extra) are never read. The partition only selects a policy.
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
"""Far above the file of 20,000 jobs; keeps a wrong file from filling memory."""

MAX_NAMES: Final = 2_000_000
"""Node names in all jobs together. Above it, the rest of the file is not read."""

MAX_JOB_ID: Final = 2**32
"""Slurm's job ids have 32 bits (slurm.h)."""

_MAX_DIGITS: Final = 20
"""A job's number that is written as text has fewer digits."""


def job_requests(
    content: bytes | None, hostlist: str, invalid_names: list[str] | None = None
) -> tuple[JobRequest, ...]:
    """Return each job's nodes, from the resume file and ResumeProgram's argument.

    Exactly one request holds a node: the request of the first job that lists it. Requests of other
    jobs that wait for the node have it in `shared_nodes`. Nodes of the argument that no job lists
    follow as requests without a job. Each is a request of its own, so that it can fail alone.
    Therefore every node is launched even if the file is absent, unreadable or malformed.
    Texts in the argument that are not our names are appended to `invalid_names`. So are the largest
    ranges of an argument that names too many nodes. Raises nothing.
    """
    unlisted_nodes = dict.fromkeys(
        expand(hostlist, invalid_names=[] if invalid_names is None else invalid_names), True
    )
    entries = tuple(_job_entries(content))
    if not hostlist:
        unlisted_nodes = {node: True for _, nodes, _ in entries for node in nodes}
    requests: list[JobRequest] = []
    requested_nodes: set[NodeName] = set()
    for job, nodes, partition in entries:
        own_nodes = tuple([node for node in nodes if unlisted_nodes.pop(node, False)])
        shared = (
            tuple([node for node in nodes if node in requested_nodes]) if requested_nodes else ()
        )
        requested_nodes.update(own_nodes)
        if own_nodes or shared:
            requests.append(JobRequest(job, own_nodes, partition, shared))
    requests.extend(JobRequest(None, (node,)) for node in unlisted_nodes)
    return tuple(requests)


def _job_entries(content: bytes | None) -> Iterable[tuple[int | None, tuple[NodeName, ...], str]]:
    """Yield each entry's job, nodes and partition.

    An entry with an unreadable number still has the nodes of one job, all or none.
    """
    names_left = MAX_NAMES
    for entry in _entries(content):
        nodes = entry.get("nodes_resume", entry.get("nodes"))
        partition = entry.get("partition")
        if not isinstance(nodes, str):
            continue
        # A name that is not ours belongs to another tool.
        node_names = expand(nodes, invalid_names=[])
        names_left -= len(node_names)
        if names_left < 0:
            return  # jobs that share nodes repeat them; no real file repeats so many
        yield (
            _job_id(entry.get("job_id")),
            node_names,
            partition if isinstance(partition, str) else "",
        )


def _job_id(value: object) -> int | None:
    """Return a job's number, or None if it is malformed.

    It may be plain, text, or {set, number} as newer data parsers write it.
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isdecimal()
        and len(value) < _MAX_DIGITS
    ):
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
