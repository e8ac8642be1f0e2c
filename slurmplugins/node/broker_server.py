"""The credential broker's HTTP server on loopback.

All users of the node talk to it. None of them can keep the others from it for
long. Each has a share of the connections, and each request must arrive by a deadline.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import paths

if TYPE_CHECKING:
    from slurmplugins.node.credential_broker import CredentialBroker
    from slurmplugins.system.clock import Clock

ADDRESS: Final = "127.0.0.1"
PORT: Final = 817
"""Below 1024: while the broker is down, no user can take its port and collect tokens."""

CONNECTIONS: Final = 256
CONNECTIONS_OF_USER: Final = 64
REQUEST_SECONDS: Final = 5.0
"""Time in which a whole request must arrive, however slowly its bytes come."""

UNKNOWN_USER: Final = -1
"""Owner of a connection that its process has closed already."""

_TABLES: Final = ("net/tcp", "net/tcp6")
_LOCAL, _REMOTE, _UID = 1, 2, 7
"""Columns of the kernel's tables of sockets (proc(5), /proc/net/tcp)."""


class BrokerServer(ThreadingHTTPServer):
    """The HTTP server of a broker, for a bounded number of connections at once."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, broker: CredentialBroker, clock: Clock, port: int = PORT) -> None:
        """Listen on loopback. Raises OSError."""
        self.broker, self.clock = broker, clock
        self._owners: dict[Any, int] = {}  # of the open connections, by the client's address
        self._lock = threading.Lock()
        super().__init__((ADDRESS, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread.

        Closes it when too many are open, of all users or of this one.
        """
        if not self._admit(client_address):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._release(client_address)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._release(client_address)

    def handle_error(self, request: socket.socket | Any, client_address: Any) -> None:
        """Print no traceback.

        A client that hangs up is no fault of ours.
        """

    def _admit(self, client_address: Any) -> bool:
        owner = socket_owner(client_address, self.server_address)
        with self._lock:
            of_owner = Counter(self._owners.values())[owner]
            if len(self._owners) >= CONNECTIONS or of_owner >= CONNECTIONS_OF_USER:
                return False
            self._owners[client_address] = owner
            return True

    def _release(self, client_address: Any) -> None:
        with self._lock:
            self._owners.pop(client_address, None)


class _Handler(BaseHTTPRequestHandler):
    server: BrokerServer
    timeout = REQUEST_SECONDS  # of the answer
    server_version = "slurm-toolkit"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Request(self.connection, self.server.clock))

    def do_GET(self) -> None:
        answer = self.server.broker.answer(self.path, self.headers.get("Authorization", ""))
        body = json.dumps(answer.body).encode()
        self.connection.settimeout(self.timeout)
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Write no line for each request: the broker logs what it decides."""


class _Request(io.RawIOBase):
    """The bytes of one request, with one deadline for all of them.

    A socket's own time limit begins anew with each byte.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._deadline = clock.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived. Raises TimeoutError after the deadline."""
        seconds_left = self._deadline - self._clock.monotonic()
        if seconds_left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(seconds_left)
        return self._connection.recv_into(buffer)


def socket_owner(client_address: Any, server_address: Any) -> int:
    """Return the uid of a connection's client, a process of this host.

    A connection by IPv6 to an IPv4 address is in a table of its own, with longer addresses.
    """
    client, server = _kernel_form(client_address), _kernel_form(server_address)
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in (paths.PROC / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[_LOCAL].endswith(client) and fields[_REMOTE].endswith(server):
                    return int(fields[_UID])
    return UNKNOWN_USER


def _kernel_form(address: Any) -> str:
    """Return an IPv4 address and port as the kernel's tables have them."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"
