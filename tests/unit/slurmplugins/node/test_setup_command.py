"""Commands that set an instance up: which exit codes end the set-up, and in which words."""

from __future__ import annotations

import pytest

from slurmplugins.errors import BootError
from slurmplugins.node import setup_command
from tests.fakes.runner import FakeRunner

ARGV = ["/usr/bin/mount", "fs", "/shared"]


def test_a_failed_command_is_named_with_the_end_of_its_output():
    runner = FakeRunner()
    runner.answer("/usr/bin/mount", returncode=32, stderr="x" * 500 + "no such device\n")
    with pytest.raises(BootError) as caught:
        setup_command.run(runner, ARGV, timeout=1)
    assert caught.value.message.startswith("/usr/bin/mount fs /shared failed: xxx")
    assert caught.value.message.endswith("no such device")
    assert len(caught.value.message) < 450


def test_a_command_without_errors_is_named_with_its_output():
    runner = FakeRunner()
    runner.answer("/usr/bin/mount", returncode=1, stdout="busy")
    with pytest.raises(BootError, match="failed: busy"):
        setup_command.run(runner, ARGV, timeout=1)


def test_a_shown_name_and_a_bound_of_the_output_are_kept():
    runner = FakeRunner()
    runner.answer("/usr/bin/mount", returncode=1, stderr="abcdef")
    with pytest.raises(BootError) as caught:
        setup_command.run(runner, ARGV, timeout=1, shown="mount", max_output=3)
    assert caught.value.message == "mount failed: def"


def test_an_accepted_exit_code_is_a_result():
    runner = FakeRunner()
    runner.answer("/usr/sbin/useradd", returncode=9)
    result = setup_command.run(runner, ["/usr/sbin/useradd", "ada"], timeout=1, accepted={0, 9})
    assert result.returncode == 9
    with pytest.raises(BootError):
        setup_command.run(runner, ["/usr/sbin/useradd", "ada"], timeout=1, accepted={9 + 1})


@pytest.mark.parametrize(("returncode", "mounted"), [(0, True), (1, False), (32, False)])
def test_a_folder_is_mounted_if_mountpoint_says_so(returncode, mounted):
    runner = FakeRunner(strict=True)
    runner.answer("/usr/bin/mountpoint", "-q", "/shared", returncode=returncode)
    assert setup_command.is_mounted(runner, "/shared") is mounted
