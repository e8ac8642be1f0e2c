"""A call of slurmctld's divided: our nodes, and those of the site whose Slurm we joined.

Names of the site's nodes are another administrator's. What is only his stays as slurmctld wrote it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BadName
from slurmplugins.model import json_input
from slurmplugins.model.hostlist import compress, expand, split_parts

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

NODE_KEYS: Final = ("nodes_resume", "nodes")
"""A job's nodes in the resume file, since 23.02 and before."""
ALL_KEYS: Final = ("all_nodes_resume", "all_nodes")


def divide(hostlist: str, own_nodes: AbstractSet[str]) -> tuple[str, str]:
    """Return our part of a hostlist, and the site's.

    Each node is in exactly one of the two.
    """
    own_parts: list[str] = []
    site_parts: list[str] = []
    for part in filter(None, split_parts(hostlist)):
        try:
            names = expand(part)
        except BadName:  # no name of ours, or more names than we have
            site_parts.append(part)
            continue
        own = [name for name in names if name in own_nodes]
        others = [name for name in names if name not in own_nodes]
        if own:
            own_parts.append(part if not others else compress(own))
        if others:
            site_parts.append(part if not own else compress(others))
    return ",".join(own_parts), ",".join(site_parts)


def sites_resume_file(content: bytes | None, own_nodes: AbstractSet[str]) -> bytes | None:
    """Return the resume file with the site's nodes alone.

    A job without any of them is left out. None for a file that can't be read: the site's program
    must not take our nodes for its own.
    """
    try:
        document = json_input.loads(content or b"")
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    document = _with_sites_nodes(document, ALL_KEYS, own_nodes)
    jobs = document.get("jobs")
    if isinstance(jobs, list):
        entries = [
            _with_sites_nodes(job, NODE_KEYS, own_nodes) for job in jobs if isinstance(job, dict)
        ]
        document["jobs"] = [entry for entry in entries if any(entry.get(key) for key in NODE_KEYS)]
    return json.dumps(document).encode() + b"\n"


def _with_sites_nodes(
    table: dict[str, Any], keys: tuple[str, ...], own_nodes: AbstractSet[str]
) -> dict[str, Any]:
    hostlists = {key: table[key] for key in keys if isinstance(table.get(key), str)}
    return table | {key: divide(text, own_nodes)[1] for key, text in hostlists.items()}
