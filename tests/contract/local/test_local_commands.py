"""`toolkit local` against a daemon in its own process, without machines."""

from __future__ import annotations

import json
import os
import signal
import time

import boto3
import pytest
from click.testing import CliRunner

from tests.patience import PROGRAM_SECONDS
from toolkit.commands.local import local as command
from toolkit.errors import LocalError
from toolkit.local.daemon_files import StateFiles
from toolkit.local.image_registry import MEMORY_BASE
from toolkit.local.options import ADMIN_KEY
from toolkit.local.sockets import bind


@pytest.fixture
def port():
    bound = bind("127.0.0.1", 0)
    with bound:
        return bound.getsockname()[1]


@pytest.fixture
def toolkit_local(tmp_path, port):
    """A function that runs `toolkit local` with its own state directory.

    The fixture runs `down` at the end.
    """

    def run(*words, fails=False):
        result = CliRunner().invoke(command, [*words, "--state", str(tmp_path)])
        if fails:
            assert isinstance(result.exception, LocalError), result.output
            return str(result.exception)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    yield run
    run("down")


@pytest.fixture
def up(toolkit_local, port):
    def start():
        words = ("up", "--driver", "none", "--port", str(port), "--no-rates", "--json")
        return json.loads(toolkit_local(*words))

    return start


def kill(daemon, folder):
    """Kill a daemon, and wait until it is gone."""
    os.kill(daemon["pid"], signal.SIGKILL)
    deadline = time.monotonic() + PROGRAM_SECONDS
    while StateFiles(folder).running() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_up_status_drills_and_down_work_on_one_daemon(toolkit_local, up, port, tmp_path):
    """Kill the first daemon by kill -9, and use the next."""
    killed = up()
    assert killed["started"]
    kill(killed, tmp_path)
    first = up()
    assert first["started"]
    assert first["pid"] != killed["pid"]
    again = up()
    assert (again["pid"], again["started"]) == (first["pid"], False)
    credentials = tmp_path / "aws" / "credentials"
    assert "[local]" in credentials.read_text()
    assert credentials.stat().st_mode & 0o077 == 0

    ec2 = boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=first["endpoint"],
        aws_access_key_id=ADMIN_KEY,
        aws_secret_access_key="x",
    )
    tags = [{"Key": "toolkit:nodes", "Value": "gpu-001"}]
    ec2.run_instances(
        ImageId=MEMORY_BASE,
        InstanceType="g5.xlarge",
        MinCount=1,
        MaxCount=1,
        InstanceMarketOptions={"MarketType": "spot"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    assert "gpu-001" in toolkit_local("status")
    assert "interrupted at" in toolkit_local("interrupt", "gpu-001", "--notice", "0")
    deadline = time.monotonic() + PROGRAM_SECONDS
    while "no instances" not in toolkit_local("status"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "gives 0 more" in toolkit_local("exhaust", "spot")
    assert "capacity of */*/spot: 0 more" in toolkit_local("status")
    toolkit_local("exhaust", "--restore")
    toolkit_local("throttle", "RunInstances", "--count", "3")
    assert "RunInstances answers RequestLimitExceeded, 3 more times" in toolkit_local("status")
    assert "gpu-009" in toolkit_local("interrupt", "gpu-009", fails=True)

    toolkit_local("down")
    assert StateFiles(tmp_path).running() is None
    assert "no local cloud runs" in toolkit_local("status", fails=True)


def test_up_names_a_port_that_is_in_use(toolkit_local, port):
    with bind("127.0.0.1", port) as listening_socket:
        listening_socket.listen()
        words = ("up", "--driver", "none", "--port", str(port))
        assert "Address already in use" in toolkit_local(*words, fails=True)
