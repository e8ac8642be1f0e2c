"""A node's place in EC2's network, as Slurm's topology/tree takes it. Values only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPOLOGY: Final = "ec2"
"""The topology's name in topology.yaml."""

ROOT: Final = "region"
"""The switch above all others. A job may span all nodes below it."""

UNPLACED: Final = "unplaced"
"""The leaf switch, in topology.yaml, of nodes whose place Slurm was not told."""

_NETWORK_NODE: Final = re.compile(r"nn-[A-Za-z0-9]{1,40}", re.ASCII)
_MAX_LAYERS: Final = 8


def is_placed(topology: str) -> bool:
    """Return whether Slurm was told a place of this node.

    A node that has its switch from topology.yaml has none here: slurmctld prints only what it was
    told (seen on 25.11.7).
    """
    return topology.startswith(f"{TOPOLOGY}:")


def unit(network_nodes: Sequence[str]) -> str:
    """Return the value of a node's `Topology=`, down to its leaf switch.

    `network_nodes` are EC2's, from the top of its network down. Returns "" if they are not as EC2
    writes them. Source: scontrol(1), Topology; DescribeInstanceTopology in the EC2 API.
    """
    if not 0 < len(network_nodes) <= _MAX_LAYERS or len({*network_nodes}) < len(network_nodes):
        return ""
    if not all(_NETWORK_NODE.fullmatch(name) for name in network_nodes):
        return ""
    return ":".join((TOPOLOGY, ROOT, *network_nodes))
