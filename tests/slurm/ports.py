"""Attempts to connect to a port, from a machine of the local cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.config import load
from toolkit.deploy.session import Clients

if TYPE_CHECKING:
    from tests.slurm.conftest import Cluster

OPEN, CLOSED = "open", "TimeoutError"  # a security group drops packets, without an answer
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
    print("open")
except OSError as error:
    print(type(error).__name__)
"""


def connect_argv(address: str, port: int) -> tuple[str, ...]:
    """Return the command that prints OPEN, or the error's name."""
    return ("python3", "-c", _CONNECT, address, str(port))


def head_address(cluster: Cluster) -> str:
    """Return the head's address in its VPC."""
    return str(load(cluster.config).network.head_address)


def group_id(cluster: Cluster, role: str) -> str:
    """Return the id of a security group of the stack."""
    config = load(cluster.config)
    names = {"Name": "tag:Name", "Values": [f"{config.cluster}-{role}"]}
    (group,) = (
        Clients(config).client("ec2").describe_security_groups(Filters=[names])["SecurityGroups"]
    )
    return str(group["GroupId"])
