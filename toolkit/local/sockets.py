"""Listening sockets: on the host and inside machines' network namespaces, one loop for all."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import selectors
import socket
import threading
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import BaseWSGIServer, make_server

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.local.imds import WsgiApp

log = logging.getLogger(__name__)

_CLONE_NEWNET = 0x40000000
_BACKLOG = 128
_IDLE = 300.0  # seconds after which a connection that nobody uses is closed
LINK_LOCAL = "169.254.169.254"


class Handler(MotoRequestHandler):  # type: ignore[misc]  # moto is untyped here
    """Werkzeug's handler with keep-alive; requests are not logged one by one."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the local cloud logs what happens to instances."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - its name
        """Pass errors on to the log."""
        log.debug("%s: %s", type, message % args if args else message)


class Listeners:
    """Accepts connections on any number of sockets; each is served in a thread of its own."""

    def __init__(self) -> None:
        """Begin with no socket."""
        self._selector = selectors.DefaultSelector()
        self._servers: dict[str, list[BaseWSGIServer]] = {}
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._stopping = False

    def add(self, name: str, listening_socket: socket.socket, app: WsgiApp) -> None:
        """Serve the app on a bound socket, which this takes over."""
        listening_socket.listen(_BACKLOG)
        address, port = listening_socket.getsockname()[:2]
        server = make_server(
            address, port, app, threaded=True, request_handler=Handler, fd=listening_socket.fileno()
        )
        listening_socket.close()  # the server has a duplicate
        server.daemon_threads = True
        server.socket.setblocking(False)
        with self._lock:
            self._servers.setdefault(name, []).append(server)
            self._selector.register(server.socket, selectors.EVENT_READ, server)
        self._wake()

    def remove(self, name: str) -> None:
        """Stop listening on the sockets of a name; repeating it is harmless."""
        with self._lock:
            servers = self._servers.pop(name, [])
            for server in servers:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(server.socket)
                server.socket.close()
        self._wake()

    def run(self) -> None:
        """Accept connections until `stop`."""
        while not self._stopping:
            for key, _ in self._selector.select():
                if key.data is None:
                    os.read(self._wake_read, 4096)
                    continue
                self._accept(key.data)

    def stop(self) -> None:
        """End `run` and close every socket."""
        self._stopping = True
        for name in list(self._servers):
            self.remove(name)
        self._wake()

    def _accept(self, server: BaseWSGIServer) -> None:
        try:
            server._handle_request_noblock()  # noqa: SLF001 - as serve_forever does
        except (OSError, ValueError) as error:  # the socket was removed meanwhile
            log.debug("accept: %s", error)

    def _wake(self) -> None:
        os.write(self._wake_write, b"!")


def bind(address: str, port: int, namespace: Path | None = None) -> socket.socket:
    """Return a bound TCP socket, in a network namespace if given."""
    if namespace is None:
        return _bind(address, port)
    result: list[socket.socket | OSError] = []

    def work() -> None:
        try:
            _enter(namespace)
            result.append(_bind(address, port))
        except OSError as error:
            result.append(error)

    # setns(2) moves the calling thread alone, so a thread that ends afterwards needs no way back.
    thread = threading.Thread(target=work, name=f"bind-{namespace.name}")
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]


def _bind(address: str, port: int) -> socket.socket:
    listening_socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening_socket.bind((address, port))
    except OSError:
        listening_socket.close()
        raise
    return listening_socket


def _enter(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"setns {namespace}: {os.strerror(code)}")
    finally:
        os.close(descriptor)


class MachineSockets:
    """The servers in a machine's network: the endpoint on loopback, the metadata service."""

    def __init__(self, listeners: Listeners, port: int, api: WsgiApp, imds: Any) -> None:
        """Keep the parts; `api` is the endpoint that machines may use.

        `imds` makes an instance's app.
        """
        self._listeners = listeners
        self._port = port
        self._api = api
        self._imds = imds

    def open(self, instance_id: str, namespace: Path | None) -> None:
        """Listen in the namespace; in the host's network the endpoint listens already."""
        if namespace is None:
            return
        self.close(instance_id)
        self._listeners.add(instance_id, bind("127.0.0.1", self._port, namespace), self._api)
        service = bind(LINK_LOCAL, 80, namespace)
        self._listeners.add(instance_id, service, self._imds.app(instance_id))

    def close(self, instance_id: str) -> None:
        """Stop listening there."""
        self._listeners.remove(instance_id)
