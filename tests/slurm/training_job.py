"""A training job, as a researcher submits and sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm.waiting import PATIENCE, until

if TYPE_CHECKING:
    from tests.slurm.conftest import Cluster

HOME = "/shared/home/ada"
TORCHRUN = "/shared/jobscripts/torchrun.sbatch"
DIGITS = "/shared/jobscripts/digits/train.py"
SCRIPTS = Path(__file__).parent / "scripts"
PYTHON = ("env", "PYTHONPATH=/shared/lib", "/shared/env/bin/python")
SAVE_EVERY = 20  # steps between two periodic checkpoints of slow.py
# The pool `farm`, whose nodes have no GPU: one rank a node, and no other job on it.
ON_FARM = ("--partition=batch", "--gpus-per-node=0", "--exclusive")
OVER = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"})


@dataclass(frozen=True)
class TrainingJob:
    """A job: its records in Slurm, the files of its run folder."""

    cluster: Cluster
    number: str

    def record(self) -> dict:
        return self.cluster.job(self.number)

    def states(self) -> frozenset[str]:
        """Return the job's states from slurmctld.

        After slurmctld has forgotten the job, accounting gives the state.
        """
        if records := self.cluster.jobs(self.number):
            return frozenset(records[0]["job_state"])
        argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--format=State")
        return frozenset(self.cluster.run(*argv, f"--jobs={self.number}").split()[:1])

    def nodes(self) -> list[str]:
        return self.cluster.run("scontrol", "show", "hostnames", self.record()["nodes"]).split()

    def log(self) -> list[dict]:
        """Return the log's lines, one for each step."""
        return [json.loads(line) for line in self._lines("steps.jsonl")]

    def steps(self) -> int:
        """Return the number of steps in the log."""
        return len(self._lines("steps.jsonl"))

    def saved(self) -> list[int]:
        """Return the steps of the checkpoints, oldest first."""
        pauses = [json.loads(line) for line in self._lines("times.jsonl")]
        return [pause["step"] for pause in pauses if pause["kind"] == "save"]

    def attempts(self) -> list[dict]:
        """Return the lines of the attempts file."""
        return [json.loads(line) for line in self._lines("attempts.jsonl")]

    def attempt(self, number: int) -> dict:
        """Return an attempt's line, once the line has the attempt's first step."""

        def started_attempt() -> dict | None:
            attempts = self.attempts()[number:]
            return attempts[0] if attempts and attempts[0]["step_start"] is not None else None

        return until(f"attempt {number} of job {self.number}", started_attempt)

    def causes(self) -> list[str]:
        """Return the causes of the ended attempts, oldest first."""
        return [attempt["cause"] for attempt in self.attempts() if attempt["ended_at"]]

    def run(self) -> dict | None:
        """Return the newest MLflow run, as `toolkit runs` shows it.

        None means no run yet, or that MLflow does not answer yet. On a busy test host the first job
        can start before MLflow.
        """
        output = self.cluster.toolkit("runs", "list", "--json", may_fail=True)
        if "[tracking-away]" in output.stderr:
            return None
        assert output.returncode == 0, output.stderr
        runs = json.loads(output.stdout)
        return next((r for r in runs if r["tags"].get("toolkit.job_id") == self.number), None)

    def running(self) -> frozenset[str]:
        """Wait until the job runs; an early end fails at once."""

        def is_running() -> bool:
            states = self.states()
            assert not states & OVER, f"job {self.number} ended early: {states}\n{self.output()}"
            return states == {"RUNNING"}

        until(f"job {self.number} running", is_running)
        return self.states()

    def trained(self, steps: int) -> int:
        """Wait for so many steps, and return the steps at that time."""
        until(f"{steps} steps of job {self.number}", lambda: self.steps() >= steps)
        return self.steps()

    def ended(self, seconds: float = PATIENCE) -> frozenset[str]:
        """Wait for the end of the job's processes; return its states."""

        def is_finished() -> bool:
            states = self.states()
            return bool(states & OVER) and "COMPLETING" not in states

        until(f"job {self.number}'s end", is_finished, seconds)
        return self.states()

    def output(self) -> str:
        """Return all that the job's attempts have printed."""
        return self._file(f"{HOME}/slurm-{self.number}.out")

    def _lines(self, name: str) -> list[str]:
        # The last line may be half written.
        return self._file(f"{HOME}/runs/{self.number}/{name}").split("\n")[:-1]

    def _file(self, path: str) -> str:
        return self.cluster.run("sh", "-c", 'cat -- "$1" 2>/dev/null || true', "cat", path)


def submit(cluster: Cluster, *argv: str, before: tuple[str, ...] = ()) -> TrainingJob:
    """Submit as ada from her home, with plain sbatch.

    `before` comes before the word sbatch on the command line.
    """
    number = cluster.as_user(*before, "sbatch", "--parsable", f"--chdir={HOME}", *argv)
    return TrainingJob(cluster, number.strip())


def paced(cluster: Cluster) -> str:
    """Return the path of the script that paces another one's first attempt."""
    return cluster.write(f"{HOME}/paced.py", (SCRIPTS / "paced.py").read_text())


def slow(cluster: Cluster, *argv: str, gate: str = "") -> TrainingJob:
    """Submit training that takes a second an epoch and needs little CPU.

    The run completes with the first epoch after the file `gate` exists.
    """
    script = cluster.write(f"{HOME}/slow.py", (SCRIPTS / "slow.py").read_text())
    options = ["--epochs=1000", f"--save-every={SAVE_EVERY}"]
    if gate:
        cluster.as_user("rm", "-f", gate)
        options.append(f"--gate={gate}")
    return submit(cluster, *argv, TORCHRUN, script, *options)
