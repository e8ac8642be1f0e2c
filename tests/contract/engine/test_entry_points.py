"""The programs as Slurm calls them.

They have no PATH and no HOME, but a time limit, and Slurm reads their output.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def called(module: str, *argv: str, environment: dict[str, str] | None = None) -> float:
    """Run a module as the three-line wrappers do.

    Returns the seconds until the caller is free.
    """
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import slurmplugins.{module} as m"
    code += "; m.main()"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, *argv],
        env=environment or {},
        capture_output=True,  # run() returns once every process has closed the pipes
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr == b""
    return time.monotonic() - began


@pytest.mark.parametrize("module", ["resume", "suspend", "resume_fail"])
def test_the_caller_is_free_at_once_with_an_empty_environment(module: str, tmp_path: Path):
    """Measure the call; the two seconds are for a loaded test host.

    An idle one needs a tenth of a second.
    """
    resume_file = tmp_path / "resume.json"
    resume_file.write_text('{"jobs": []}')
    environment = {"SLURM_RESUME_FILE": str(resume_file)}
    assert called(module, "gpu-[001-002]", environment=environment) < 2


@pytest.mark.parametrize("argument", ["", "$(id)", "gpu-[1-", "-x", "gpu-[0-999999]"])
def test_invalid_arguments_do_not_trouble_the_caller(argument: str):
    called("resume", argument)


def test_a_resume_file_that_is_gone_does_not_trouble_the_caller():
    called("resume", "gpu-001", environment={"SLURM_RESUME_FILE": "/proc/1/fd/999"})


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
