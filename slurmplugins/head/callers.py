"""Tell whose a connection to MLflow or to Optuna's storage is.

Both servers let a user change only what is hers. The caller is the user whose process opened the
connection. The kernel at the other end knows her: the head's own for processes on the head, else
the node's, which answers by ident (`node.ident`).

| at the other end | may change |
|---|---|
| a user's process, on a node or on the head | what is hers |
| a program of the head, as a system user that the server names | everything |
| root, another system user, a uid that the head does not know | nothing |

Root changes nothing, because SSM forwards ports as root: then the uid tells nobody's name.
"""

from __future__ import annotations

import pwd
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.node.ident import PORT as IDENT_PORT
from slurmplugins.system.socket_owner import read_owner

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurmplugins.system.socket_owner import Address

USER_IDS: Final = range(1000, 60_001)
"""The uids that cluster.yaml may give to users (toolkit.config.model.User)."""
IDENT_SECONDS: Final = 5.0
_LONGEST_ANSWER: Final = 256
_ESTABLISHED: Final = 1
"""TCP_ESTABLISHED: the first byte of the kernel's struct tcp_info."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity at the other end of a connection."""

    name: str
    is_user: bool
    is_system: bool = False
    """A program of the head that may change everybody's runs and sweeps."""


class Connection:
    """An accepted connection to a server on the head. Threads may share it."""

    def __init__(self, accepted: socket.socket, system_users: Collection[str]) -> None:
        """Take the accepted socket, which the server goes on to use."""
        self._socket = accepted
        self._system_users = system_users
        self._lock = threading.Lock()
        self._caller: Caller | None = None

    def caller(self) -> Caller | None:
        """Return the caller of a connection.

        Returns None if nobody can tell at the moment. The first answer is kept: a connection has
        one owner.
        """
        with self._lock:
            if self._caller is None:
                self._caller = self._find_caller()
            return self._caller

    def _find_caller(self) -> Caller | None:
        try:
            own, peer = self._socket.getsockname()[:2], self._socket.getpeername()[:2]
            is_on_head = peer[0] == own[0]
            uid = read_owner(peer, own) if is_on_head else ask_ident(peer, own)
            # Another connection can have the same ports only after this end is closed. Without
            # this check a user could send a request, hang up, and have another's connection seen.
            if uid is None or not self._is_established():
                return None
        except OSError:
            return None
        return caller_of(uid, is_on_head=is_on_head, system_users=self._system_users)

    def _is_established(self) -> bool:
        return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED


def caller_of(uid: int, *, is_on_head: bool, system_users: Collection[str]) -> Caller:
    """Return the identity of a uid, by the head's list of accounts."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return Caller(f"uid {uid}", is_user=False)
    is_user = uid in USER_IDS
    is_system = is_on_head and not is_user and name in system_users
    return Caller(name, is_user=is_user, is_system=is_system)


def ask_ident(peer: Address, own: Address) -> int | None:
    """Ask the peer for the uid at its end of a connection.

    Returns None if it knows no such connection. Raises OSError.
    """
    node = (peer[0], IDENT_PORT)
    with socket.create_connection(node, IDENT_SECONDS, source_address=(own[0], 0)) as connection:
        connection.sendall(f"{peer[1]}, {own[1]}\r\n".encode())
        with connection.makefile("rb") as lines:
            line = lines.readline(_LONGEST_ANSWER).decode("ascii", "replace")
    return parse_answer(line, peer[1], own[1])


def parse_answer(line: str, peer_port: int, own_port: int) -> int | None:
    """Return the uid in a node's answer about these ports.

    Returns None for any other answer.
    """
    ports, *fields = (field.strip() for field in line.split(":"))
    if "".join(ports.split()) != f"{peer_port},{own_port}" or fields[:2] != ["USERID", "OTHER"]:
        return None
    (uid,) = fields[2:3] or [""]
    return int(uid) if uid.isascii() and uid.isdecimal() else None
