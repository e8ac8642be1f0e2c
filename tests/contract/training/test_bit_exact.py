"""A run interrupted eight times, which ends with the same weights."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.distributed.process_group import Solo
from toolkit.training.recording.audit import audit

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
EPOCHS = 60  # epochs of 15 steps; a fast test host does eighty before it reads a notice
ARGUMENTS = ("--epochs", str(EPOCHS), "--hidden", "64", "--checkpoint-every", "20")


def weights(run_dir):
    newest = Checkpointer(run_dir / "checkpoints", Solo()).committed()[0]
    return torch.load(newest / "shared.pt", weights_only=True)["model"]


@pytest.fixture
def root(tmp_path):
    """A folder in memory if the test host has one.

    The run makes hundreds of checkpoints, and no test needs them after a power cut.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


def test_interrupted_eight_times_the_digits_run_ends_with_the_same_bits(root):
    script = REPO / "jobscripts" / "digits" / "train.py"
    done = subprocess.run(
        [sys.executable, str(HERE / "interrupt_digits_run.py"), str(root), str(script), *ARGUMENTS],
        env=os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found = audit(root / "2")
    assert (found.ok, found.steps, found.epochs_complete) == (True, EPOCHS * 15, EPOCHS), (
        found.problems
    )
    assert len(found.attempts) == 9
    assert {a["cause"] for a in found.attempts} == {"spot-interruption", "lost", "finished"}
    whole, interrupted = weights(root / "1"), weights(root / "2")
    assert all(torch.equal(interrupted[name], value) for name, value in whole.items())
