"""The EC2 tag keys. Together with Slurm's InstanceId they are the only map from node to machine."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "toolkit:cluster"
ROLE: Final = "toolkit:role"
POOL: Final = "toolkit:pool"
PARTITION: Final = "toolkit:partition"
NODES: Final = "toolkit:nodes"
"""Hostlist of the launch; the instance's AmiLaunchIndex says which of them it is. Goes on in
`toolkit:nodes.2` and so on where it is longer than a tag's value.
"""
ORDER: Final = "toolkit:order"
"""Only on machines of a fleet, whose launch index says nothing: which instance is which entry of
NODES, written once the fleet has answered, and PENDING until then. Goes on like NODES.
"""
PENDING: Final = "pending"
NODE: Final = "toolkit:node"
"""Overrides NODES when present: set when a machine is given to another node later."""
ATTEMPT: Final = "toolkit:attempt"
PRICE: Final = "toolkit:price"
"""USD an hour as a decimal string: what resume believed at launch."""
PRICES: Final = "toolkit:prices"
"""The same for a fleet of several instance types: `type=price,…`. Goes on like NODES."""
NAME: Final = "Name"

ROLE_HEAD: Final = "head"
ROLE_COMPUTE: Final = "compute"
ROLE_BUILDER: Final = "builder"

MAX_VALUE: Final = 256
"""EC2 refuses longer tag values."""
