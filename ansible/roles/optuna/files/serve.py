"""Optuna's storage for the nodes: its gRPC service in front of the head node's database.

serve.py DATABASE_URL ADDRESS PORT [SYSTEM_USER]

gRPC shows its service no connection's socket, and so not whose it is. Therefore connections come to
a relay, which knows the caller of each. It forwards them to the service, on a port of loopback. The
service finds the caller by the port from which the relay speaks. A connection that somebody else
makes to the service has no caller, and writes nothing.
"""

import asyncio
import socket
import sys
import warnings
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

warnings.filterwarnings("ignore", message=".*experimental.*")

import grpc  # noqa: E402  # after the filter, like the next
from optuna.storages import get_storage  # noqa: E402
from optuna.storages._grpc.auto_generated import api_pb2_grpc  # noqa: E402
from optuna.storages._grpc.servicer import OptunaStorageProxyService  # noqa: E402

from owned_studies import OwnedStudies  # noqa: E402
from slurmplugins.head.callers import Connection  # noqa: E402

LOOPBACK = "127.0.0.1"
THREADS = 10  # as many as Optuna's own server has
CHUNK = 65_536


class Relay:
    """The way from the nodes to the service."""

    def __init__(self, system_users: Collection[str]) -> None:
        self.connections: dict[int, Connection] = {}
        self._system_users = system_users
        self._port = 0

    async def serve(self, address: str, port: int, service_port: int) -> None:
        self._port = service_port
        server = await asyncio.start_server(self._forward, address, port)
        await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        # A node that is terminated says no end of its connections.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        service_reader, service_writer = await asyncio.open_connection(LOOPBACK, self._port)
        port = service_writer.get_extra_info("sockname")[1]
        self.connections[port] = Connection(accepted, self._system_users)
        copies = [
            asyncio.create_task(copy(reader, service_writer)),
            asyncio.create_task(copy(service_reader, writer)),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self.connections[port]
            for task in copies:
                task.cancel()
            for end in (writer, service_writer):
                end.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until one of the two ends is closed."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        return


def main() -> None:
    url, address, port, *names = sys.argv[1:]
    # get_storage and not RDBStorage: it keeps finished trials in memory, which the proxy needs.
    storage = get_storage(url)
    relay = Relay(names or ["optuna"])
    service = grpc.server(
        ThreadPoolExecutor(max_workers=THREADS),
        interceptors=[OwnedStudies(storage, relay.connections)],
    )
    api_pb2_grpc.add_StorageServiceServicer_to_server(OptunaStorageProxyService(storage), service)
    service_port = service.add_insecure_port(f"{LOOPBACK}:0")
    service.start()
    asyncio.run(relay.serve(address, int(port), service_port))


if __name__ == "__main__":
    main()
