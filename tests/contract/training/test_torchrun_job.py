"""The batch script with real workers and real signals.

srun is a stand-in that starts the command on the test host as Slurm would on the first node.
tests/slurm tests real Slurm's reaction to the exit codes.

A test with `torchrun=True` needs torchrun's own agent. Elsewhere `fork_server.py` forks the ranks,
which is faster.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import optuna
import pytest

from tests.contract.training.job_ids import job_id
from tests.patience import PROGRAM_SECONDS
from toolkit.datasets.locks import Lock
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.distributed.process_group import Solo
from toolkit.training.recording.audit import audit
from toolkit.training.run_folder.attempts import AttemptsFile

pytestmark = pytest.mark.timeout(1800)

REPO = Path(__file__).resolve().parents[3]
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=0 exec "$@"
"""
TORCHRUN = f"""#!/bin/bash
exec {sys.executable} {Path(__file__).with_name("fake_torchrun.py")} "$@"
"""


@dataclass
class Cluster:
    """A node with `ranks` pretended GPUs, and a shared filesystem."""

    root: Path
    fork_server: Path
    ranks: int = 2
    processes: list = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "bin").mkdir()
        srun = self.root / "bin" / "srun"
        srun.write_text(SRUN)
        srun.chmod(0o755)
        self._environments()
        (self.root / "stop").mkdir()

    def _environments(self) -> None:
        """Make two environments: the real one, and one with a fake torchrun."""
        real = Path(sys.executable).parents[1]
        (self.root / "env").symlink_to(real)
        played = self.root / "played"
        (played / "bin").mkdir(parents=True)
        for path in real.iterdir():
            if path.name != "bin":
                (played / path.name).symlink_to(path)
        (played / "bin" / "python").symlink_to(sys.executable)
        torchrun = played / "bin" / "torchrun"
        torchrun.write_text(TORCHRUN)
        torchrun.chmod(0o755)

    def notice(self, job):
        """Write the first attempt's interruption notice, as the node agent does."""
        path = self.root / "stop" / f"{job_id(job)}.0.json"
        path.write_text('{"cause": "spot-interruption"}')

    def submit(
        self,
        job,
        restart,
        *arguments,
        script=None,
        ranks=None,
        batch="torchrun",
        torchrun=False,
        **more,
    ):
        environment = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}:/usr/sbin",
            "TOOLKIT_RUNS": str(self.root / "runs"),
            "USER": "ada",
            "SLURM_JOB_ID": job_id(job),
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_GPUS_ON_NODE": str(ranks or self.ranks),
            "SLURMD_NODENAME": "gpu-001",
            "TOOLKIT_JOBSCRIPTS": str(REPO / "jobscripts"),
            "FORK_SERVER": str(self.fork_server),
            "TOOLKIT_ENV": str(self.root / ("env" if torchrun else "played")),
            "TOOLKIT_LIB": str(REPO),
            "TOOLKIT_STOP_DIR": str(self.root / "stop"),
            "TOOLKIT_LOG": str(self.root / f"job-{job}.log"),
            **({"SLURM_RESTART_COUNT": str(restart)} if restart else {}),
            **more,
        }
        log = (self.root / f"job-{job}.log").open("ab")
        process = subprocess.Popen(
            [
                "bash",
                str(REPO / "jobscripts" / f"{batch}.sbatch"),
                str(script or REPO / "jobscripts" / "digits" / "train.py"),
                *arguments,
            ],
            env=environment,
            cwd=self.root,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        self.processes.append(process)
        return process

    def run(self, job, restart=0, *arguments, **more):
        return self.submit(job, restart, *arguments, **more).wait(timeout=PROGRAM_SECONDS)

    def run_dir(self, job):
        return self.root / "runs" / job_id(job)

    def log(self, job):
        return (self.root / f"job-{job}.log").read_text()

    def wait_for_steps(self, job, attempt, steps=10):
        """Wait until the attempt has taken some steps."""
        path = self.run_dir(job) / "steps.jsonl"
        deadline = time.monotonic() + PROGRAM_SECONDS
        while time.monotonic() < deadline:
            if path.exists() and path.read_text().count(f'"attempt": {attempt},') > steps:
                return
            time.sleep(0.02)
        pytest.fail(f"attempt {attempt} did not get anywhere:\n{self.log(job)}")

    def workers(self, process):
        """Return the training processes, which are torchrun's children."""
        launchers = _children(process.pid)
        return [pid for launcher in launchers for pid in _children(launcher)]


def _children(pid):
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]


@pytest.fixture
def cluster(tmp_path, fork_server):
    made = Cluster(tmp_path, fork_server)
    yield made
    for process in made.processes:
        for pid in [*made.workers(process), *_children(process.pid), process.pid]:
            if process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        process.wait()


ARGUMENTS = ("--epochs", "30", "--hidden", "256", "--checkpoint-every", "50")
STEPS = 30 * 15


def weights(run_dir):
    import torch

    newest = Checkpointer(run_dir / "checkpoints", Solo()).committed()[0]
    return torch.load(newest / "shared.pt", weights_only=True)["model"]


def same(a, b):
    import torch

    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def result(cluster, job):
    return json.loads((cluster.run_dir(job) / "result.json").read_text())


def test_stopped_killed_and_resumed_the_run_ends_with_the_same_bits(cluster):
    """Interrupt a run four times.

    - The test writes an interruption notice, as the node agent does.
    - The batch script gets the time limit's signal.
    - A rank is killed.
    - All processes are killed.
    """
    assert cluster.run(1, 0, *ARGUMENTS) == 0
    assert result(cluster, 1)["accuracy"] > 0.95

    job = cluster.submit(2, 0, *ARGUMENTS)  # a notice, as the node agent writes it
    cluster.wait_for_steps(2, 0)
    cluster.notice(2)
    assert job.wait(timeout=PROGRAM_SECONDS) == 85

    job = cluster.submit(2, 1, *ARGUMENTS)  # the time limit, as Slurm signals it
    cluster.wait_for_steps(2, 1)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(timeout=PROGRAM_SECONDS) == 85

    # A rank is lost: the other ranks ask for a requeue.
    job = cluster.submit(2, 2, *ARGUMENTS, torchrun=True)
    cluster.wait_for_steps(2, 2)
    os.kill(cluster.workers(job)[-1], signal.SIGKILL)
    assert job.wait(timeout=PROGRAM_SECONDS) == 85

    job = cluster.submit(2, 3, *ARGUMENTS)  # all processes are killed
    cluster.wait_for_steps(2, 3)
    for pid in [job.pid, *_children(job.pid), *cluster.workers(job)]:
        os.kill(pid, signal.SIGKILL)
    job.wait()

    # tests/slurm has runs that end under torchrun: of the demo, and of test_other_jobscripts.py.
    assert cluster.run(2, 4, *ARGUMENTS) == 0
    found = audit(cluster.run_dir(2))
    assert (found.ok, found.steps) == (True, STEPS), found.problems
    assert [attempt["cause"] for attempt in found.attempts[::4]] == [
        "spot-interruption",
        "finished",
    ]
    assert found.attempts[1]["cause"] == "time-limit"
    # A rank that got SIGKILL was most often killed for memory.
    assert found.attempts[2]["cause"] in ("transient", "out-of-memory")
    assert found.attempts[3]["cause"] == "lost"
    first, second = found.attempts[:2]
    assert first["step_end"] == second["step_start"]
    assert all(step >= second["step_end"] for step in found.repeated)  # none because of a notice
    assert same(weights(cluster.run_dir(1)), weights(cluster.run_dir(2)))
    assert result(cluster, 1)["accuracy"] == result(cluster, 2)["accuracy"]


def test_a_stop_while_one_rank_takes_its_dataset_brings_all_of_them_back(cluster):
    """Stop a job while rank 0 waits for another job's fill.

    The other ranks wait for it in a collective, before any of them has a run.
    """
    (cluster.root / "data.py").write_text(
        "import os\n"
        "from toolkit.training import Run, dataset\n"
        "if os.environ['RANK'] == '0':\n"
        "    dataset(os.environ['WANTED'])\n"
        "with Run(params={}, seed=0) as run:\n"
        "    run.resume()\n"
    )
    folder = cluster.root / "raw"
    folder.mkdir()
    (folder / "x").write_text("abc")
    version = add(Catalog(FolderStore(cluster.root / "store")), folder).version
    places = {"TOOLKIT_DATA_STORE": "store", "TOOLKIT_DATA_CACHE": "cache"}
    lock = cluster.root / "cache" / "locks" / version.removeprefix("sha256:")
    lock.parent.mkdir(parents=True)
    with Lock(lock) as filling:  # another job of this user, which never ends its fill
        assert filling.try_exclusive()
        cluster.notice(11)
        job = cluster.submit(11, 0, script="data.py", WANTED=version, **places)
        assert job.wait(timeout=PROGRAM_SECONDS) == 85, cluster.log(11)
    attempts = AttemptsFile(cluster.run_dir(11) / "attempts.jsonl").attempts()
    assert [(one.cause, one.rule.split("@")[0]) for one in attempts] == [
        ("spot-interruption", "stopped-spot")
    ]


FSDP = ("--sequences", "256", "--length", "16", "--width", "32", "--layers", "2")
PIPELINE = ("--epochs", "3", "--hidden", "64")


def test_a_job_that_is_requeued_with_no_step_left_ends_well(cluster):
    """Run a completed job again.

    A notice after the last step's save has the same effect. This example saves in the background.
    tests/slurm/test_other_jobscripts.py trains all examples with interrupted instances.
    """
    job = {"script": REPO / "jobscripts" / "fsdp" / "train.py", "batch": "fsdp"}
    for attempt in (0, 1):
        assert cluster.run(8, attempt, *FSDP, **job) == 0, cluster.log(8)
    found = audit(cluster.run_dir(8))
    assert (found.ok, found.repeated, len(found.attempts)) == (True, (), 2), found.problems


def test_a_pipeline_comes_back_in_fewer_stages_and_once_more_with_no_step_left(cluster):
    job = {"script": REPO / "jobscripts" / "pipeline" / "train.py", "batch": "pipeline"}
    cluster.notice(9)
    for attempt, (ranks, code) in enumerate([(2, 85), (1, 0), (1, 0)]):
        done = cluster.run(9, attempt, *PIPELINE, ranks=ranks, **job)
        assert done == code, cluster.log(9)
    found = audit(cluster.run_dir(9))
    assert (found.ok, found.repeated, len(found.attempts)) == (True, (), 3), found.problems


def test_another_trainers_run_under_torchrun_asks_to_be_requeued(cluster):
    """Stop Lightning under torchrun, on one rank.

    test_adapters tests several ranks, and the next attempt with its bits. Here each rank would
    import Lightning by itself.
    """
    script = REPO / "jobscripts" / "lightning" / "train.py"
    cluster.notice(10)
    words = ("--batch", "240", "--hidden", "32")
    assert cluster.run(10, 0, *words, script=script, ranks=1, torchrun=True) == 85, cluster.log(10)
    found = audit(cluster.run_dir(10))
    assert (found.ok, [a["cause"] for a in found.attempts]) == (True, ["spot-interruption"])
    assert found.attempts[0]["step_end"] == found.steps > 0


SCONTROL = """#!/bin/bash
[[ $* == *--json* ]] && echo '{}'
echo "$*" >>"${0%/*}/../asked"
"""
LOST = {
    "attempt": 0, "job_id": job_id(11), "restart_count": 0, "started_at": 0.0, "ended_at": 3600.0,
    "seconds": 3600.0, "cause": "lost", "step_start": 0, "step_end": 9, "world_size": 1,
    "nodes": ["gpu-001"], "instances": [], "cost_usd": "2.00",
}  # fmt: skip


def test_a_job_whose_node_died_with_its_dollars_spent_trains_again_when_it_is_released(cluster):
    scontrol = cluster.root / "bin" / "scontrol"
    scontrol.write_text(SCONTROL)
    scontrol.chmod(0o755)
    (cluster.root / "ok.py").write_text("print('TRAINED')")
    cluster.run_dir(11).mkdir(parents=True)
    (cluster.run_dir(11) / "attempts.jsonl").write_text(json.dumps(LOST) + "\n")
    job = {"script": "ok.py", "ranks": 1, "TOOLKIT_MAX_USD": "2"}
    assert cluster.run(11, 1, **job) == 93, cluster.log(11)
    assert f"[toolkit] job {job_id(11)} is held: $2.00 spent, $2.00 allowed" in cluster.log(11)
    assert "TRAINED" not in cluster.log(11)
    assert f"requeuehold {job_id(11)}" in (cluster.root / "asked").read_text()
    cluster.run(11, 2, **job)
    assert "TRAINED" in cluster.log(11)


def test_a_script_of_any_name_runs_and_nothing_else_does(cluster):
    """Run a script without the library, with odd arguments.

    It exits with torchrun's own code, and gets its arguments unchanged. Its name begins as an
    option does, and has what a shell would run.
    """
    name = "-it's $(touch pwned);é.py"
    (cluster.root / name).write_text(
        "import os, sys\n"
        "print('argv', sys.argv[1:])\n"
        "print('MLflow asks the Internet:', os.environ['MLFLOW_DISABLE_TELEMETRY'] != 'true')\n"
    )
    odd = ["two words", "$HOME", "`id`", "--flag=*", ""]
    assert cluster.run(4, 0, *odd, script=name, ranks=1, torchrun=True) == 0, cluster.log(4)
    assert f"argv {odd}" in cluster.log(4)
    assert "MLflow asks the Internet: False" in cluster.log(4)
    assert not (cluster.root / "pwned").exists()


def test_a_script_that_fails_is_not_brought_back(cluster):
    (cluster.root / "bad.py").write_text(
        "from toolkit.training import Run\n"
        "with Run(params={}, seed=0) as run:\n"
        "    raise ValueError('no such column')\n"
    )
    assert cluster.run(5, 0, script="bad.py", ranks=1, torchrun=True) == 1
    assert f"[toolkit] job {job_id(5)} is not requeued: error (exception: " in cluster.log(5)


# join's timeout has the first meeting of the ranks in it: 8 s were too few on a busy machine.
ALONE = """
from datetime import timedelta
import torch
from toolkit.training import Run
from toolkit.training.distributed.process_group import join

def evaluate(run):
    run.check()

torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=90))  # ranks start apart
with Run(params={}, seed=0, world=join(timeout=timedelta(seconds=15))) as run:
    if run.world.rank == 0:
        evaluate(run)
    torch.distributed.all_reduce(torch.zeros(1))
"""


def test_ranks_that_wait_for_each_other_at_different_lines_end_with_both_lines(cluster):
    (cluster.root / "alone.py").write_text(ALONE)
    assert cluster.run(13, 0, script="alone.py", torchrun=True) == 85
    said = cluster.log(13)
    waits = r"1 of 2 ranks have waited \d+ s \(rank 0 at \S+/alone.py:8 \(evaluate\)\);"
    waits += r" missing: rank 1 at \S+/alone.py:14 \(<module>\), distributed/"
    assert re.search(r"^\[toolkit\] " + waits, said, re.MULTILINE), said
    assert re.search("RuntimeError: .*; " + waits, said), said


FAILS = """
import os
from toolkit.training import Run
with Run(params={}, seed=0) as run:
    raise RuntimeError(os.environ["FAILURE"])
"""


def test_a_run_that_waits_for_its_next_attempt_has_not_failed_and_one_that_fails_has(
    cluster, monkeypatch
):
    (cluster.root / "fails.py").write_text(FAILS)
    uri, allowed = f"file://{cluster.root}/mlflow", ("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv(*allowed)
    for restart, failure, code, allowed_statuses in (
        # On a busy machine an attempt's records may reach MLflow with those of the next attempt.
        (0, "NCCL error in: ncclRemoteError", 85, ([], ["RUNNING"])),
        (1, "no such column", 1, (["FAILED"],)),
    ):
        job = {"script": "fails.py", "ranks": 1, "FAILURE": failure, "MLFLOW_TRACKING_URI": uri}
        assert cluster.run(12, restart, **job, **dict([allowed])) == code, cluster.log(12)
        assert statuses(uri) in allowed_statuses, cluster.log(12)


TRIAL = """
import os
from toolkit.training import Run
from toolkit.training.sweeps import SweepTrial
with SweepTrial(lambda trial: {}) as trial, Run(params={}, seed=0, world=trial.world) as run:
    raise OSError(os.environ["FAILURE"])
"""


def test_a_trial_whose_task_is_requeued_is_not_over_before_the_task_is(cluster):
    (cluster.root / "trial.py").write_text(TRIAL)
    storage = f"sqlite:///{cluster.root}/sweep.db"
    array = {"SLURM_ARRAY_JOB_ID": job_id(14), "SLURM_ARRAY_TASK_ID": "0"}
    for restart, failure, code, state in (
        (0, "[Errno 5] Input/output error", 85, "RUNNING"),
        (1, "no such column", 1, "FAIL"),
    ):
        job = {"script": "trial.py", "batch": "sweep", "ranks": 1, "FAILURE": failure, **array}
        assert cluster.run(14, restart, **job, TOOLKIT_SWEEP_STORAGE=storage) == code, cluster.log(
            14
        )
        (study,) = optuna.get_all_study_summaries(storage)
        (trial,) = optuna.load_study(study_name=study.study_name, storage=storage).trials
        assert trial.state.name == state, cluster.log(14)
    assert trial.user_attrs["toolkit.ended"] == "OSError: no such column"


def statuses(uri):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiments = [found.experiment_id for found in client.search_experiments()]
    return [run.info.status for run in client.search_runs(experiments)]


@pytest.mark.parametrize(
    ("script", "environment", "says"),
    [
        ("absent.py", {}, "can't be read"),
        ("ok.py", {"TOOLKIT_ENV": "/nowhere"}, "no torchrun in the Python environment /nowhere"),
        ("ok.py", {"TOOLKIT_RUN_ID": "../x"}, "is not a plain name"),
        ("ok.py", {"TOOLKIT_RUNS": "/proc/runs"}, "set TOOLKIT_RUNS"),
        ("ok.py", {"TOOLKIT_MIN_FREE_MIB": "999999999"}, "MiB free"),
    ],
)
def test_what_cannot_work_is_refused_before_it_starts(cluster, script, environment, says):
    (cluster.root / "ok.py").write_text("")
    assert cluster.run(6, 0, script=script, **environment) == 93
    assert says in cluster.log(6)


def test_a_first_start_takes_no_folder_of_an_older_job_of_the_same_number(cluster):
    (cluster.root / "ok.py").write_text("import os; print('IN', os.environ['TOOLKIT_RUN_DIR'])")
    for restart in (0, 0, 1):
        cluster.run(7, restart, script="ok.py", ranks=1)
    folders = [line.split("/")[-1] for line in cluster.log(7).splitlines() if line.startswith("IN")]
    assert folders == [job_id(7), f"{job_id(7)}.2", f"{job_id(7)}.2"]


def test_a_restart_takes_no_folder_of_another_clusters_job_of_the_same_number(cluster):
    """Restart a job whose first launch left no folder.

    The first launch may have failed before the script ran.
    """
    (cluster.root / "ok.py").write_text("import os; print('IN', os.environ['TOOLKIT_RUN_DIR'])")
    for name, restart in (("old", 0), ("old", 1), ("new", 1), ("new", 2)):
        cluster.run(7, restart, script="ok.py", ranks=1, SLURM_CLUSTER_NAME=name)
    folders = [line.split("/")[-1] for line in cluster.log(7).splitlines() if line.startswith("IN")]
    assert folders == [job_id(7)] * 2 + [f"{job_id(7)}.2"] * 2
