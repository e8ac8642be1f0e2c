"""The credential broker on its socket: HTTP on loopback, read by an AWS SDK."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from slurmplugins import node_credentials
from slurmplugins.cloud.job_role import JobRole
from slurmplugins.config import paths
from slurmplugins.node import broker_server
from slurmplugins.node.broker_server import REQUEST_SECONDS, BrokerServer, socket_owner
from slurmplugins.node.credential_broker import PATH
from slurmplugins.system import systemd
from slurmplugins.system.logger import Log
from tests.fakes.credential_broker import Stage
from tests.patience import PROGRAM_SECONDS

CONNECT = """
import encodings.idna, os, socket, sys  # this user may read no module
os.setuid(int(sys.argv[1]))
connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
print(connection.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def broker_of(stage):
    return BrokerServer(stage.broker, stage.clock, port=0)


def get(url, token):
    request = urllib.request.Request(url, headers={"Authorization": token})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - loopback
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def connection_to(url):
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)


def is_closed(connection):
    """Say whether the other side has closed a connection; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_the_broker_answers_on_loopback_by_http(stage):
    with serving(broker_of(stage)) as url:
        assert get(url + PATH, stage.token())[0] == 200
        assert get(url + PATH, "")[0] == 403
        assert url.startswith("http://127.0.0.1:")


def test_an_sdk_gets_its_credentials_by_the_variables_of_the_task_prolog(stage, monkeypatch):
    from botocore.credentials import ContainerProvider

    stage.clock.jump(time.time() - stage.clock.now())
    with serving(broker_of(stage)) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url + PATH)
        file = str(stage.jobs / "7" / "token")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file)
        found = ContainerProvider().load()
    assert found.get_frozen_credentials().secret_key == "secret of ada"


def test_a_request_whose_bytes_come_slowly_is_cut_off_at_its_deadline(stage):
    """Each byte is in time, and the request never ends."""
    with serving(broker_of(stage)) as url, connection_to(url) as connection:
        connection.settimeout(0.02)
        for _ in range(200):
            try:
                connection.sendall(b"G")
                stage.clock.advance(REQUEST_SECONDS / 2)
                assert connection.recv(1) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the request may go on for ever")


@pytest.fixture
def patient(monkeypatch):
    """A server that cuts off no request while a test looks."""
    monkeypatch.setattr(broker_server, "REQUEST_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_one_user_can_not_occupy_all_connections(stage, monkeypatch):
    monkeypatch.setattr(broker_server, "CONNECTIONS_OF_USER", 3)
    owners = iter([2001, 2001, 2001, 2001, 2002, 2001])
    monkeypatch.setattr(broker_server, "socket_owner", lambda *_: next(owners))
    server = broker_of(stage)
    with serving(server) as url:
        held = [connection_to(url) for _ in range(3)]
        with connection_to(url) as refused:
            assert is_closed(refused)
        assert get(url + PATH, stage.token())[0] == 200, "of another user"
        held.pop().close()
        while list(server._owners.values()).count(2001) > 2:
            time.sleep(0.01)
        connection = connection_to(url)
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b"404" in connection.recv(100), "a connection that ended is free again"
        for one in (*held, connection):
            one.close()


@pytest.mark.usefixtures("patient")
def test_all_users_together_have_a_bounded_number_of_connections(stage, monkeypatch):
    monkeypatch.setattr(broker_server, "CONNECTIONS", 2)
    with (
        serving(broker_of(stage)) as url,
        connection_to(url),
        connection_to(url),
        connection_to(url) as refused,
    ):
        assert is_closed(refused)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_the_kernel_says_whose_a_connection_is(address):
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = server.getsockname()
        program = CONNECT.replace("127.0.0.1", address)
        process = subprocess.Popen(
            [sys.executable, "-c", program, "2001", str(listener[1])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            accepted, client = server.accept()
            with accepted:
                assert client == ("127.0.0.1", port)
                assert socket_owner(client, listener) == 2001
    assert socket_owner(client, listener) in (broker_server.UNKNOWN_USER, 0)


def test_the_program_listens_and_answers_before_it_is_connected_to_aws(stage, monkeypatch):
    """SDKs give up after three seconds if nothing listens."""
    connected, asked = threading.Event(), threading.Event()

    def connect():
        asked.set()
        connected.wait()

    monkeypatch.setattr(paths, "JOB_TOKENS", stage.jobs)
    role = JobRole("arn:aws:iam::1:role/jobs", connect, stage.clock)
    log = Log(stage.lines.append, stage.clock, {})
    with serving(node_credentials.open_server(role, stage.clock, log, port=0)) as url:
        assert asked.wait(PROGRAM_SECONDS)
        assert get(url + PATH, "")[0] == 403
        connected.set()


def test_a_service_tells_systemd_that_it_has_started(tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        systemd.notify_ready()
        assert receiver.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    systemd.notify_ready()
