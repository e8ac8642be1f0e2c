"""Read access to Slurm for people's commands.

Everything goes through a `Runner`, which runs one argv on the head node and returns its standard
output. `reader()` gives the `Reader` to use; today that is always the CLI's JSON. pyslurm refuses
to talk to any Slurm but the major.minor it was built for, so an adapter for it belongs behind the
same protocol and is chosen only where the versions match.
"""

from __future__ import annotations

from toolkit.head_runner import Runner, SlurmAnswerError
from toolkit.slurm_api.model import JobInfo, NodeInfo, PartitionInfo
from toolkit.slurm_api.reader import Reader, reader
from toolkit.slurm_nodes import CliReader

__all__ = [
    "CliReader",
    "JobInfo",
    "NodeInfo",
    "PartitionInfo",
    "Reader",
    "Runner",
    "SlurmAnswerError",
    "reader",
]
