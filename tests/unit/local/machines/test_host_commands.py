"""Commands on the host end, even if a process stops or hangs."""

from __future__ import annotations

import pytest

from toolkit.local.machines.host_commands import RealHost

LONG = 60.0


@pytest.fixture
def host():
    return RealHost()


def test_run_returns_output_errors_and_exit_code(host):
    done = host.run(["sh", "-c", "cat; echo wrong >&2; exit 3"], stdin=b"given", timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"given", b"wrong\n")


def test_a_stopped_command_is_continued(host):
    done = host.run(["sh", "-c", "kill -STOP $$; echo on"], timeout=LONG)
    assert (done.returncode, done.stdout) == (0, b"on\n")


def test_a_command_that_times_out_is_killed_with_its_children(host):
    done = host.run(["sh", "-c", "sleep 1000 & sleep 1000"], timeout=0.2)
    assert done.returncode == 124


def test_a_background_child_does_not_block_run(host):
    assert host.run(["sh", "-c", "sleep 5 & echo up"], timeout=LONG).stdout == b"up\n"


def test_a_missing_program_is_named(host):
    done = host.run(["no-such-program-here"])
    assert (done.returncode, done.stderr) == (127, b"no-such-program-here: not installed")
