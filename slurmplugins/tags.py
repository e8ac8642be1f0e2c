"""The EC2 tag keys. Together with Slurm's InstanceId they are the only map from node to machine."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "toolkit:cluster"
ROLE: Final = "toolkit:role"
POOL: Final = "toolkit:pool"
PARTITION: Final = "toolkit:partition"
NODES: Final = "toolkit:nodes"
"""Hostlist of the launch; the instance's AmiLaunchIndex says which of them it is."""
NODE: Final = "toolkit:node"
"""Overrides NODES when present: set when a machine is given to another node later."""
ATTEMPT: Final = "toolkit:attempt"
PRICE: Final = "toolkit:price"
"""USD an hour as a decimal string: what resume believed at launch."""
NAME: Final = "Name"

ROLE_HEAD: Final = "head"
ROLE_COMPUTE: Final = "compute"
ROLE_BUILDER: Final = "builder"

MAX_VALUE: Final = 256
"""EC2 refuses longer tag values."""
