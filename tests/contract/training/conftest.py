"""Stand-ins for what a test is not about, by name; and programs that fork ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.training import json_codec, part, ranks

__all__ = ["json_codec", "part", "ranks"]


@pytest.fixture(scope="session")
def worker():
    """Run a program of this folder, which forks ranks; it must end well, and says why if not."""
    here = Path(__file__).resolve().parent

    def run(name, *words, timeout, **environment):
        done = subprocess.run(
            [sys.executable, str(here / name), *words],
            env=os.environ
            | {"PYTHONPATH": str(here.parents[2]), "OMP_NUM_THREADS": "1"}
            | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-6000:]}"

    return run
