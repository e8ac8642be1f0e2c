"""A job of the racks that goes on in the cloud from its checkpoint, and goes home again."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3
import pytest
import torch

from tests.fakes import s3_server
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.distributed.process_group import Solo
from toolkit.training.recording.audit import audit
from toolkit.training.run_folder import moved_run
from toolkit.training.run_folder.run_folder import RunFolder

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).resolve().parent
STEPS, EPOCHS = 600, 40
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with both runs, in memory if possible.

    No test needs the checkpoints after a power cut.
    """
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else tmp_path_factory.mktemp("runs")
    with s3_server.serving() as url, tempfile.TemporaryDirectory(dir=place) as folder:
        boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        ).create_bucket(Bucket="between")
        done = subprocess.run(
            [sys.executable, str(HERE / "move_run.py"), folder],
            env=os.environ
            | CREDENTIALS
            | {
                "PYTHONPATH": str(HERE.parents[2]),
                "OMP_NUM_THREADS": "1",
                "AWS_ENDPOINT_URL": url,
                "AWS_DEFAULT_REGION": "us-east-1",
                "TOOLKIT_CHECKPOINTS": "s3://between/checkpoints",
                "TOOLKIT_SITE_FILE": f"{folder}/absent",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        yield Path(folder)


@pytest.fixture
def folders(root):
    return root / "racks" / "2", root / "cloud" / "2"


def test_every_sample_is_trained_once_over_both_filesystems(folders):
    found = audit(*folders)
    assert (found.ok, found.steps, found.epochs_complete) == (True, STEPS, EPOCHS), found.problems
    assert len(found.attempts) == 6
    assert [not one["nodes"] for one in found.attempts] == [False] * 6
    assert all(step > 0 for step in found.resumed_at)


def test_losses_and_samples_are_those_of_a_run_that_never_moved(root, folders):
    whole, moved = (
        moved_run.read([RunFolder(folder) for folder in places]).history.steps
        for places in ([root / "racks" / "1"], folders)
    )
    assert len(whole) == STEPS
    assert [(step.step, step.start, step.stop, step.fingerprint) for step in moved] == [
        (step.step, step.start, step.stop, step.fingerprint) for step in whole
    ]
    assert [step.metrics["loss"] for step in moved] == [step.metrics["loss"] for step in whole]


def test_the_weights_have_the_same_bits(root, folders):
    whole, moved = (
        torch.load(
            Checkpointer(folder / "checkpoints", Solo()).committed()[0] / "shared.pt",
            weights_only=True,
        )["model"]
        for folder in (root / "racks" / "1", folders[0])
    )
    assert all(torch.equal(moved[name], value) for name, value in whole.items())


def test_a_preempted_attempt_loses_no_step_by_moving(folders):
    """Compare the steps that were trained in vain with the stops.

    A stop waits until its checkpoint is in S3.
    """
    history = moved_run.read([RunFolder(folder) for folder in folders]).history
    after_stops = [history.resumptions[number].step for number in (1, 3, 5)]
    repeated_steps = {record.step for record in history.repeated}
    assert repeated_steps.isdisjoint(after_stops)
