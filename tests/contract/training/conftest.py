"""Fixtures that fork ranks, and the fakes that are shared by name."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.fakes.training import json_codec, part, ranks

__all__ = ["json_codec", "part", "ranks"]


@pytest.fixture(scope="session")
def worker():
    """A function that runs a program of this folder, which forks ranks.

    The test fails with the program's output if its exit status is not 0.
    """
    here = Path(__file__).resolve().parent

    def run(name, *words, timeout, **environment):
        # A rank that is killed leaves its temporary files.
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(here / name), *words],
                env=os.environ
                | {
                    "PYTHONPATH": str(here.parents[2]),
                    "OMP_NUM_THREADS": "1",
                    "TMPDIR": folder,
                }
                | environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
            )
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-6000:]}"

    return run


@pytest.fixture(scope="session")
def fork_server():
    """The socket of a process that has imported torch.

    fake_torchrun.py asks this process to fork ranks.
    """
    here = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket must be short
        place = Path(folder) / "socket"
        server = subprocess.Popen(
            [sys.executable, str(here / "fork_server.py"), str(place)],
            env=os.environ
            | {
                "PYTHONPATH": str(here.parents[2]),
                "PYTHONUNBUFFERED": "1",
                "OMP_NUM_THREADS": "1",
            },
            stdin=subprocess.PIPE,
        )
        while not place.is_socket() and server.poll() is None:
            time.sleep(0.02)
        yield place
        server.kill()  # the end of its input stops it when this process is killed
        server.communicate()
