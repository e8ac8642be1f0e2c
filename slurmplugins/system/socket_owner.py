"""Find the user at the other end of a TCP connection on this machine.

TCP carries no uid. The kernel's tables have it: /proc/net/tcp has a line for each socket, with the
uid of the process that made it. Only an established connection counts. A socket that is closed
belongs to nobody any more, and the kernel shows it with uid 0.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TABLES: Final = ("net/tcp", "net/tcp6")
TRIES: Final = 3
"""Looks at the tables. The kernel may leave out a line while a table changes."""
_ESTABLISHED: Final = "01"
_NO_INODE: Final = "0"
_MAPPED: Final = f"{0:016X}{int.from_bytes(bytes((0, 0, 255, 255)), sys.byteorder):08X}"
"""The beginning of an IPv4 address in tcp6. gRPC makes its sockets that way."""

Address = tuple[str, int]
"""An IPv4 address and a port."""


def read_owner(local: Address, remote: Address, proc: Path = paths.PROC) -> int | None:
    """Return the uid of the local socket with these two ends.

    Returns None if no established connection has them. Raises OSError.
    """
    for table in TABLES * TRIES:
        path = proc / table
        if not path.exists():  # tcp6, where IPv6 is switched off
            continue
        with path.open(encoding="ascii") as lines:
            uid = find_owner(lines, local, remote)
        if uid is not None:
            return uid
    return None


def find_owner(lines: Iterable[str], local: Address, remote: Address) -> int | None:
    """Return the uid in the table's line with these two ends."""
    wanted = {
        (f"{prefix}{_encode(local)}", f"{prefix}{_encode(remote)}") for prefix in ("", _MAPPED)
    }
    for line in lines:
        fields = line.split(maxsplit=10)
        if len(fields) < len(("sl", "local", "remote", "st", "q", "t", "r", "uid", "out", "inode")):
            continue
        if (fields[1], fields[2]) not in wanted or fields[3] != _ESTABLISHED:
            continue
        if fields[9] != _NO_INODE and fields[7].isdecimal():
            return int(fields[7])
    return None


def _encode(address: Address) -> str:
    """Write an address as the tables do.

    Its bytes are one number, in this processor's order.
    """
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
