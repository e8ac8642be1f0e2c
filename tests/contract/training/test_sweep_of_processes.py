"""A sweep of real processes over Optuna's real proxy.

Each trial ends exactly once, also if its process is killed.
"""

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import optuna
import pytest

from tests.patience import PROGRAM_SECONDS
from toolkit.training.recording.audit import audit
from toolkit.training.sweeps import status, study as study_storage, trials

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

REPO = Path(__file__).resolve().parents[3]
SERVER = REPO / "ansible" / "roles" / "optuna" / "files" / "serve.py"
TASKS, EPOCHS = 4, 6


@dataclass
class Array:
    """Job array 9 on the test host, one process a task.

    The test starts and requeues the processes as Slurm would.
    """

    root: Path
    storage: str
    fork_server: Path
    running: dict = field(default_factory=dict)

    def start(self, task, restart=0, *more, hold_after=None):
        """Start a task.

        With `hold_after`, it waits after that many steps for `kill_held`.
        """
        run_dir = self.root / f"task-{task}"
        environment = {
            **os.environ,
            "FORK_SERVER": str(self.fork_server),
            "TOOLKIT_RUN_DIR": str(run_dir),
            "TOOLKIT_STOP_DIR": str(self.root / "stop"),
            "TOOLKIT_SITE_FILE": str(self.root / "absent"),
            "TOOLKIT_SWEEP": "digits",
            "TOOLKIT_SWEEP_STORAGE": self.storage,
            "SLURM_JOB_ID": str(100 + task),
            "SLURM_ARRAY_JOB_ID": "9",
            "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_RESTART_COUNT": str(restart),
        }
        script = [str(REPO / "jobscripts" / "sweep" / "train.py")]
        if hold_after is not None:
            held_training = str(Path(__file__).with_name("held_training.py"))
            script = [held_training, str(hold_after), str(self.held_sign(task)), *script]
        fake_torchrun = str(Path(__file__).with_name("fake_torchrun.py"))
        options = ["--epochs", str(EPOCHS), "--checkpoint-every", "5", *more]
        log = (self.root / f"task-{task}.log").open("ab")
        self.running[task] = subprocess.Popen(
            [sys.executable, fake_torchrun, *script, *options],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        log.close()

    def held_sign(self, task):
        return self.root / f"task-{task}.held"

    def kill_held(self, task):
        """Send SIGKILL to a task that waits after its steps.

        The method first waits for a committed checkpoint.
        """
        process = self.running[task]
        checkpoints = self.root / f"task-{task}" / "checkpoints"
        while not (self.held_sign(task).exists() and [*checkpoints.glob("*/COMMITTED")]):
            assert process.poll() is None, (self.root / f"task-{task}.log").read_text()
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PROGRAM_SECONDS) == -signal.SIGKILL

    def finish(self, task):
        code = self.running[task].wait(PROGRAM_SECONDS)
        assert code == 0, (self.root / f"task-{task}.log").read_text()


@pytest.fixture
def array(tmp_path, fork_server):
    """A job array with the head node's server, here over SQLite."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    user = pwd.getpwuid(os.getuid()).pw_name  # root may change every sweep here
    argv = [sys.executable, SERVER, f"sqlite:///{tmp_path}/sweep.db", "127.0.0.1", str(port), user]
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    server = subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL)
    made = Array(tmp_path, f"grpc://127.0.0.1:{port}", fork_server)
    yield made
    for process in [*made.running.values(), server]:
        process.kill()
        process.wait()


def test_of_a_sweep_with_killed_tasks_every_trial_ends_exactly_once(array):
    for task, steps in enumerate((7, 13, 7, None)):
        array.start(task, hold_after=steps)
    for task in (0, 1, 2):  # the last of them is not requeued
        array.kill_held(task)
    for task in (0, 1):
        array.start(task, restart=1)
    for task in (0, 1, 3):
        array.finish(task)

    study = optuna.load_study(study_name="digits", storage=study_storage.connect(array.storage))
    later = time.time() + trials.GRACE_SECONDS + 1
    found = status.sweep_state(study, frozenset(), later, count=1, fail_gone=True, dry_run=False)
    ended = {one.task: one.state for one in trials.states(study)}
    assert found["trials"] == len(ended) == TASKS
    assert ended.pop("9_2") == "failed"
    assert set(ended.values()) <= {"complete", "pruned"}
    for task in (0, 1):  # they resumed at their own checkpoint, and lost no sample
        checked = audit(array.root / f"task-{task}")
        assert checked.ok, checked.problems
        assert checked.resumed_at[0] >= 5
    complete = [one.value or 0.0 for one in trials.states(study) if one.state == "complete"]
    assert found["best"][0]["value"] == max(complete)


def test_every_epoch_of_a_trial_that_was_stopped_at_the_end_of_one_is_reported(array):
    one_step_an_epoch = ("--batch", "1797")
    (array.root / "stop").mkdir()
    (array.root / "stop" / "100.0.json").write_text('{"cause": "spot-interruption"}')
    for restart in (0, 1):
        array.start(0, restart, *one_step_an_epoch)
        array.finish(0)
    study = optuna.load_study(study_name="digits", storage=study_storage.connect(array.storage))
    assert audit(array.root / "task-0").resumed_at, "it was to be stopped"
    assert set(study.trials[0].intermediate_values) == set(range(EPOCHS))
