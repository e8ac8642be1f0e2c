"""Tell the head node which user of this node has a connection to it: RFC 1413.

MLflow and Optuna's storage on the head let a user change only what is hers. The head asks the node
of a connection for the uid, and believes it as it believes the node's slurmd. The port is below
1024, so no user can answer in root's place.

    60123, 5000                          the connection's ports: the node's, the head's
    60123, 5000 : USERID : OTHER : 2001  the uid of the process that opened it
"""

from __future__ import annotations

import re
from socketserver import StreamRequestHandler, TCPServer
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.system.socket_owner import read_owner

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.system.socket_owner import Address

PORT: Final = 113
QUEUE: Final = 64
SOCKET_SECONDS: Final = 2.0
LONGEST_QUESTION: Final = 64

_QUESTION: Final = re.compile(r"\s*(\d{1,5})\s*,\s*(\d{1,5})\s*", re.ASCII)
_PORTS: Final = range(1, 65536)


def answer(
    question: str,
    own_host: str,
    other_host: str,
    find: Callable[[Address, Address], int | None] = read_owner,
) -> str:
    """Return the answer to a question that `other_host` asks.

    It learns of its own connections alone: the hosts are those of the question itself.
    """
    match = _QUESTION.fullmatch(question)
    if match is None:
        return "0, 0 : ERROR : INVALID-PORT"
    own_port, other_port = (int(text) for text in match.groups())
    ports = f"{own_port}, {other_port}"
    if own_port not in _PORTS or other_port not in _PORTS:
        return f"{ports} : ERROR : INVALID-PORT"
    uid = find((own_host, own_port), (other_host, other_port))
    return f"{ports} : ERROR : NO-USER" if uid is None else f"{ports} : USERID : OTHER : {uid}"


class IdentServer(TCPServer):
    """The server of one node. It answers one question after the other, and the head alone."""

    allow_reuse_address = True
    request_queue_size = QUEUE

    def __init__(self, host: str, port: int, *, head: str) -> None:
        """Listen. Raises OSError."""
        self._head = head
        super().__init__((host, port), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - inherited
        return bool(client_address[0] == self._head)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback.

        A head that hangs up is no fault of ours.
        """


class _Handler(StreamRequestHandler):
    timeout = SOCKET_SECONDS

    def handle(self) -> None:
        question = self.rfile.readline(LONGEST_QUESTION).decode("ascii", "replace")
        text = answer(question, self.connection.getsockname()[0], self.client_address[0])
        self.wfile.write(f"{text}\r\n".encode())
