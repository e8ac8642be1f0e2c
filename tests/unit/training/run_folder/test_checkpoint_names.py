"""The next attempt begins at the last committed checkpoint.

The attempt before may not know of the commit.
"""

import threading

import pytest

from tests.fakes.own_job import FakeScontrol
from tests.fakes.training import JsonCodec
from toolkit.training import SampleOrder
from toolkit.training.distributed.process_group import Solo
from toolkit.training.requeue.end_of_attempt import EndOfAttempt
from toolkit.training.run import Run
from toolkit.training.run_folder.attempts import AttemptsFile
from toolkit.training.run_folder.checkpoint_names import last_step
from toolkit.training.slurm.job import SlurmJob

ORDER = SampleOrder(size=32, global_batch=8, seed=1)
PEER_LOST = "Connection closed by peer [10.0.0.2]:1234"


def save_is_over():
    """Wait until the background save is done, before the next step."""
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()


@pytest.fixture
def dies(attempt_of, part, memory_tracker, tmp_path):
    """A function that runs an attempt until it loses a peer.

    It returns the exit code and the step at which the attempt began.
    """
    (tmp_path / "stop").mkdir()
    log = tmp_path / "job.log"

    def train(attempt, at, background, begun):
        run = Run(
            params={},
            seed=1,
            attempt=attempt,
            world=Solo(),
            codec=JsonCodec(),
            tracker=memory_tracker,
            checkpoint_every=3,
            background=background,
        )
        with run:
            begun.append(run.resume(model=part({"sum": 0})))
            for batch in run.batches(ORDER, 9):
                save_is_over()
                if batch.step == at:
                    raise RuntimeError(PEER_LOST)
                run.step(batch)

    def run(restart, *, at, background):
        attempt, begun = attempt_of(restart, judged=True), []
        memory_tracker.closed = False
        with pytest.raises(RuntimeError):
            train(attempt, at, background, begun)
        with log.open("a") as stream:
            stream.write(f"[toolkit] job 12, restart {restart}, run folder x\n{PEER_LOST}\n")
        environment = {"TOOLKIT_LOG": str(log)}
        ending = EndOfAttempt(
            attempt, SlurmJob("12", FakeScontrol()), environment, chance=lambda: 0.5
        )
        return ending.judge(1).code, begun[0]

    return run


@pytest.mark.parametrize("background", [False, True])
def test_an_attempt_ends_in_the_attempts_file_where_the_next_begins_whenever_it_dies(
    dies, attempt_of, background
):
    run_dir = attempt_of().run_dir
    expected = 0
    for restart, at in enumerate((1, 4, 5, 6, 10, 12)):
        _, begun = dies(restart, at=at, background=background)
        assert begun == expected
        expected = last_step(run_dir / "checkpoints") or 0
        assert AttemptsFile(run_dir / "attempts.jsonl").attempts()[-1].step_end == expected


@pytest.mark.parametrize("background", [False, True])
def test_no_job_is_held_for_standing_still_that_has_committed_a_step_since(dies, background):
    codes = [dies(n, at=at, background=background)[0] for n, at in enumerate((1, 2, 5))]
    assert codes == [85, 85, 85]
