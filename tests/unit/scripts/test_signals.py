"""A signal to the scripts of `make test` ends every process.

The scripts print all output before they exit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.patience import PROGRAM_SECONDS

SCRIPTS = Path(__file__).parents[3] / "scripts"
# The process is in the command's group but not first in it, as pytest below make and bash.
COMMAND = """echo words; sh -c 'echo $$ >"$1"; exec sleep 8641' sh "$1"; true"""
CLEAN = """#!/bin/sh
case $(ps -p "$(cat worker)" -o stat=) in Z* | "") ;; *) echo beside the command ;; esac >cleaned
echo "$@" >>cleaned
"""
SIGNALS = pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])


def until(what, condition):
    deadline = time.monotonic() + PROGRAM_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def root(tmp_path):
    """A checkout with the scripts, and a clean-up that records its begin."""
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    (tmp_path / "scripts/clean").write_text(CLEAN)
    (tmp_path / "Makefile").touch()
    return tmp_path


@pytest.fixture
def start(root):
    """A function that starts a script and waits for its command."""
    processes: list[subprocess.Popen] = []
    workers: list[int] = []

    def start_script(*argv):
        worker = root / "worker"
        # A background job of a shell ignores INT, and below nohup HUP. The script would too.
        words = ["env", "--default-signal=INT,HUP", str(root / argv[0]), *argv[1:]]
        words += ["sh", "-c", COMMAND, "sh", str(worker)]
        environment = os.environ | {"TMPDIR": str(root), "TOOLKIT_LOCAL_DIR": str(root / "state")}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            words, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
        )
        processes.append(process)
        until("the command", lambda: worker.exists() and worker.read_text().strip())
        workers.append(int(worker.read_text()))
        return process, workers[-1]

    yield start_script
    # The workers are killed first, because they hold the output of their scripts open.
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    for process in processes:
        process.kill()
        process.communicate(timeout=PROGRAM_SECONDS)


def interrupt(process, name: str) -> str:
    """Send the signal, wait for the process and return its output."""
    process.send_signal(signal.Signals[f"SIG{name}"])
    return process.communicate(timeout=PROGRAM_SECONDS)[0]


@SIGNALS
def test_an_interrupted_script_prints_the_output_and_kills_the_command(root, start, name):
    process, worker = start("scripts/buffered", "tier")
    output = interrupt(process, name)
    assert "tier: interrupted by SIG" in output
    assert output.endswith("words\n")
    assert process.returncode != 0
    assert not is_running(worker)
    assert not list(root.glob("toolkit-tier.*"))


@SIGNALS
def test_the_clean_up_begins_after_the_command_has_ended(root, start, name):
    process, worker = start("scripts/with-cleanup")
    interrupt(process, name)
    assert (root / "cleaned").read_text().splitlines() == [f"--only {root}/state"]
    assert process.returncode != 0
    assert not is_running(worker)


def test_a_second_run_in_one_state_directory_is_refused(root, start):
    first, worker = start("scripts/with-cleanup")
    environment = os.environ | {"TOOLKIT_LOCAL_DIR": str(root / "state")}
    second = subprocess.run(
        [str(root / "scripts/with-cleanup"), "touch", str(root / "begun")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode != 0
    assert f"another run uses {root}/state" in second.stderr
    assert not (root / "begun").exists()
    assert not (root / "cleaned").exists()
    assert is_running(worker)
    interrupt(first, "TERM")


def test_the_output_of_a_running_command_is_in_the_log(start):
    process, _worker = start("scripts/buffered", "tier")
    begins = process.stdout.readline()
    log = Path(begins.split()[-1])
    until("its words", lambda: log.read_text() == "words\n")
    interrupt(process, "TERM")
