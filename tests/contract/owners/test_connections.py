"""The caller of a real connection, also while it ends and another takes its ports."""

import socket
import struct
import threading
from contextlib import contextmanager

import pytest

from slurmplugins.head import callers
from slurmplugins.head.callers import Connection
from slurmplugins.node.ident import IdentServer
from slurmplugins.system.socket_owner import read_owner
from tests.contract.owners.servers import ADA, BEN, acting_as

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextmanager
def connected(uid, server, port=0):
    """Yield the user's end of a new connection, and the accepted one."""
    with acting_as(uid):
        client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    client.bind(("127.0.0.1", port))
    client.connect(server.getsockname())
    accepted, _ = server.accept()
    with client, accepted:
        yield client, accepted


def name(connection):
    caller = connection.caller()
    return caller and caller.name


def test_a_connection_is_of_the_uid_that_opened_it(server):
    for uid in (ADA, BEN):
        with connected(uid, server) as (_, accepted):
            assert name(Connection(accepted, set())) == f"uid {uid}"


def test_a_connection_whose_caller_has_hung_up_is_nobodys(server):
    with connected(BEN, server) as (client, accepted):
        client.close()
        assert Connection(accepted, set()).caller() is None
    with connected(BEN, server) as (client, accepted):
        client.shutdown(socket.SHUT_WR)
        assert Connection(accepted, set()).caller() is None


def test_a_later_connection_on_the_same_ports_does_not_lend_its_user(server, monkeypatch):
    """Hang up as Ben, so that Ada's new connection is looked at."""
    found = []
    with connected(BEN, server) as (bens, accepted):
        port = bens.getsockname()[1]

        def look_too_late(peer, own):
            bens.close()
            with connected(ADA, server, port):
                found.append(read_owner(peer, own))
            return found[0]

        monkeypatch.setattr(callers, "read_owner", look_too_late)
        assert Connection(accepted, set()).caller() is None
    assert found == [ADA]


def test_an_answer_is_kept_with_the_connection(server):
    with connected(ADA, server) as (client, accepted):
        connection = Connection(accepted, set())
        assert name(connection) == f"uid {ADA}"
        client.close()
        assert name(connection) == f"uid {ADA}"


def test_a_node_answers_the_head_alone():
    with IdentServer("127.0.0.1", 0, head="127.0.0.5") as ident:
        threading.Thread(target=ident.serve_forever, daemon=True).start()
        try:
            assert ask(ident, "127.0.0.5") == b"1, 2 : ERROR : NO-USER\r\n"
            assert ask(ident, "127.0.0.6") == b""
        finally:
            ident.shutdown()


def ask(ident, source):
    """Return the answer to a question from that address."""
    with socket.create_connection(ident.server_address, 30, source_address=(source, 0)) as caller:
        try:
            caller.sendall(b"1, 2\r\n")
            return caller.recv(100)
        except ConnectionError:
            return b""
