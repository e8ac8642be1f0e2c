"""The programs as Slurm calls them.

They have no PATH and no HOME, but a time limit, and Slurm reads their output.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import PROGRAM_SECONDS

ROOT = Path(__file__).resolve().parents[3]


def call(
    module: str, *argv: str, environment: dict[str, str] | None = None, setup: str = ""
) -> None:
    """Run a module as its wrapper does, until the caller is free."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import slurmplugins.{module} as m"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}\n{setup}\nm.main()", *argv],
        env=environment or {},
        capture_output=True,  # run() returns once every process has closed the pipes
        check=False,
        timeout=PROGRAM_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr == b""


def release(fifo: Path) -> None:
    """Let the reader of a FIFO go on, or fail without one."""
    for _ in range(600):
        try:
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            time.sleep(0.1)
        else:
            return
    pytest.fail("the program does not work in the background")


@pytest.mark.parametrize("module", ["resume", "suspend", "resume_fail"])
def test_the_caller_is_free_while_the_program_works_on(module: str, tmp_path: Path):
    """Let the program open its log only after the caller is free."""
    resume_file, fifo = tmp_path / "resume.json", tmp_path / "fifo"
    resume_file.write_text('{"jobs": []}')
    os.mkfifo(fifo)
    wait = (
        "import slurmplugins.system.program as program\n"
        f"program.open_log = lambda _: sys.exit(open({str(fifo)!r}).read())"
    )
    environment = {"SLURM_RESUME_FILE": str(resume_file)}
    call(module, "gpu-[001-002]", environment=environment, setup=wait)
    release(fifo)


@pytest.mark.parametrize("argument", ["", "$(id)", "gpu-[1-", "-x", "gpu-[0-999999]"])
def test_invalid_arguments_do_not_trouble_the_caller(argument: str):
    call("resume", argument)


def test_a_resume_file_that_is_gone_does_not_trouble_the_caller():
    call("resume", "gpu-001", environment={"SLURM_RESUME_FILE": "/proc/1/fd/999"})


def test_before_it_forks_resume_imports_next_to_nothing():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import slurmplugins.resume,"
        " slurmplugins.system.daemonize; print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"boto3", "json", "re", "subprocess", "pathlib", "typing", "logging"}


def test_before_the_request_is_parsed_neither_boto3_nor_the_cloud_is_imported():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import slurmplugins.head.assemble,"
        " slurmplugins.slurm.resume_file; print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not {name for name in loaded if name.startswith(("boto", "slurmplugins.cloud."))}
    assert not loaded & {
        "subprocess",
        "logging",
        "slurmplugins.state.journal",
        "slurmplugins.slurm.scontrol",
    }
