"""The phases of the demonstration, in order. Each method is one, and checks its own claims."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from slurmplugins.cloud import tags
from toolkit.config import load
from toolkit.demo.phases import PhaseDisplay, PhaseFailed
from toolkit.deploy.head import Head
from toolkit.deploy.session import Clients
from toolkit.head_runner import TRAINING_PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.demo.commands import ToolkitCommand

USER = "ada"
HOME = f"/shared/home/{USER}"
SCRIPT = "/shared/jobscripts/torchrun.sbatch"
TRAINING = "/shared/jobscripts/digits/train.py"
EPOCHS = 14  # 210 steps: long enough to be interrupted, short enough to watch
INTERRUPT_AFTER_STEP = 40  # late enough that a restart from zero would be visible
LEAST_ACCURACY = 0.95
PATIENCE = 300.0
"""Seconds for what takes half a minute on an idle host. A busy one needs many times as much."""

POLL_SECONDS = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Interruption:
    """EC2's interruption of the job, as it came."""

    instance_id: str
    restarts_before: int
    """Restarts of the job until then. A fault before it may have restarted the job."""


@dataclass(slots=True)
class Demo:
    """A run of the demo against one cluster."""

    toolkit: ToolkitCommand
    display: PhaseDisplay
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    job_id: str = ""
    _head: Head | None = field(default=None, init=False)

    def play(self) -> None:
        """Play every phase; raises PhaseFailed at the first failure."""
        self.start_cloud()
        self.deploy()
        self.submit()
        self.check_requeue(self.train_until_interrupted())
        self.finish()
        self.audit()
        self.scale_to_zero()

    @property
    def head(self) -> Head:
        """Return the head node's shell, opened once the cluster is there."""
        if self._head is None:
            config = load(self.toolkit.config)
            self._head = Head(Clients(config), config)
        return self._head

    def start_cloud(self) -> None:
        with self.display.phase("Start the local cloud") as show_detail:
            self.toolkit.run_and_show(
                ["local", "up"],
                show_detail,
                remedy="`make clean` removes the remains of an earlier demo; then try again",
            )

    def deploy(self) -> None:
        with self.display.phase("Deploy the cluster") as show_detail:
            self.toolkit.run_and_show(
                ["deploy", "--config", str(self.toolkit.config)],
                show_detail,
                remedy="`toolkit status` says what is unhealthy; `make clean` starts over",
            )

    def submit(self) -> None:
        """Submit as an ordinary user, with plain sbatch."""
        with self.display.phase(f"Submit as {USER}") as show_detail:
            script = [SCRIPT, TRAINING, "--epochs", str(EPOCHS)]
            argv = ["sbatch", "--parsable", f"--chdir={HOME}", *script]
            self.job_id = self._as_user(argv).strip().split(";")[0]
            if not self.job_id.isdigit():
                raise PhaseFailed(
                    f"sbatch answered {self.job_id!r}",
                    remedy="`toolkit login`, then try sbatch there",
                )
            show_detail(f"$ sbatch {' '.join(script)}  → job {self.job_id}")

    def train_until_interrupted(self) -> Interruption:
        """Wait for steps, then have EC2 interrupt one instance."""
        with self.display.phase("Launch two spot instances") as show_detail:
            self._wait_for(lambda: self._job_running(show_detail), "the job did not start")
            nodes = self._allocated_nodes()
            show_detail(f"{', '.join(nodes)} = {', '.join(self._instances(nodes))}")
        with self.display.phase("Train") as show_detail:
            self._wait_for(lambda: self._interruptible(show_detail), "no training steps")
        with self.display.phase("Interrupt an instance") as show_detail:
            nodes = self._allocated_nodes()
            (instance_id,) = self._instances(nodes[-1:])
            interruption = Interruption(instance_id, self._job()["restart_cnt"])
            self.toolkit.run_and_show(
                ["local", "interrupt", nodes[-1]],
                show_detail,
                remedy="`toolkit local status` lists the local cloud's machines",
            )
            show_detail(f"EC2's two-minute notice for {nodes[-1]}")
        return interruption

    def check_requeue(self, interruption: Interruption) -> None:
        """Check that the job saves, is requeued and runs elsewhere.

        It stops at a step boundary, and runs again without the interrupted instance.
        """

        def restarted() -> str | None:
            job = self._job()
            show_detail(f"job {self.job_id} {'+'.join(job['job_state'])}")
            return "requeued" if job["restart_cnt"] > interruption.restarts_before else None

        with self.display.phase("Checkpoint and requeue") as show_detail:
            self._wait_for(restarted, "the job was not requeued")
        with self.display.phase("Run again without it") as show_detail:
            self._wait_for(lambda: self._job_running(show_detail), "the job did not restart")
            instances = self._instances(self._allocated_nodes())
            if interruption.instance_id in instances:
                raise PhaseFailed(
                    f"the job runs again on the interrupted instance {interruption.instance_id}",
                    remedy="read `toolkit status` and the node agent's log; the job's is below",
                    evidence=self._tail(f"{HOME}/slurm-{self.job_id}.out", 60),
                )
            show_detail(", ".join(instances))

    def finish(self) -> None:
        with self.display.phase("Train to the end") as show_detail:
            self._wait_for(lambda: self._job_ended(show_detail), "the job did not end")
            state = self._job()["job_state"]
            if "COMPLETED" not in state:
                raise self._job_failure(f"job {self.job_id} ended {'+'.join(state)}")

    def audit(self) -> None:
        """Check that each step and sample counted once, and the accuracy."""
        with self.display.phase("Audit the run") as show_detail:
            audit = json.loads(self._as_user([*TRAINING_PROGRAM, "audit", self._run_dir]))
            result = json.loads(self.head.run(["cat", f"{self._run_dir}/result.json"]))
            accuracy = float(result["accuracy"])
            passed = audit["ok"] and not audit["repeated"] and len(audit["attempts"]) > 1
            if not passed or accuracy <= LEAST_ACCURACY:
                raise PhaseFailed(
                    f"audit {'passed' if passed else 'failed'}, accuracy {accuracy:.1%}",
                    remedy=f"{self._run_dir} on the head node holds the step log",
                    evidence=json.dumps(audit, indent=2)[:2000],
                )
            show_detail(
                f"{audit['steps']} steps, none lost, none repeated,"
                f" over {len(audit['attempts'])} attempts; accuracy {accuracy:.1%}"
            )

    def scale_to_zero(self) -> None:
        with self.display.phase("Scale to zero") as show_detail:

            def check_empty() -> str | None:
                instance_count = self._live_instances()
                show_detail(f"{instance_count} compute instances still run")
                return "none" if instance_count == 0 else None

            self._wait_for(check_empty, "EC2 did not terminate all compute instances")
            show_detail("EC2 lists no instance of the cluster but the head node")

    # The cluster's state

    @property
    def _run_dir(self) -> str:
        return f"{HOME}/runs/{self.job_id}"

    def _as_user(self, argv: list[str]) -> str:
        return self.head.run(["runuser", "-u", USER, "--", *argv])

    def _job(self) -> dict[str, Any]:
        """Return Slurm's record of the job.

        Asks again while slurmctld is away: scontrol then lists no job, and exits 0.
        """

        def read_job() -> dict[str, Any] | None:
            text = self.head.run(["scontrol", "show", "job", self.job_id, "--json"])
            return next(iter(json.loads(text)["jobs"]), None)

        return self._wait_for(read_job, f"slurmctld did not list job {self.job_id}")

    def _allocated_nodes(self) -> list[str]:
        names = self.head.run(["scontrol", "show", "hostnames", self._job()["nodes"]])
        return names.split()

    def _instances(self, nodes: list[str]) -> list[str]:
        text = self.head.run(["scontrol", "show", "node", ",".join(nodes), "--json"])
        return [node["instance_id"] for node in json.loads(text)["nodes"]]

    def _live_instances(self) -> int:
        """Return the number of compute instances that are not terminated.

        The demo stops none, so states of stopped instances are not asked for.
        """
        config = load(self.toolkit.config)
        pages = (
            Clients(config)
            .client("ec2")
            .get_paginator("describe_instances")
            .paginate(
                Filters=[
                    {"Name": f"tag:{tags.CLUSTER}", "Values": [config.cluster]},
                    {"Name": f"tag:{tags.ROLE}", "Values": ["compute"]},
                    {
                        "Name": "instance-state-name",
                        "Values": ["pending", "running", "shutting-down"],
                    },
                ]
            )
        )
        return sum(len(group["Instances"]) for page in pages for group in page["Reservations"])

    def _job_running(self, show_detail: Callable[[str], None]) -> str | None:
        job = self._job()
        states = job["job_state"]
        show_detail(f"job {self.job_id} {'+'.join(states)} {job.get('state_reason', '')}")
        self._fail_if_ended(states)
        return "running" if states == ["RUNNING"] else None

    def _job_ended(self, show_detail: Callable[[str], None]) -> str | None:
        states = set(self._job()["job_state"])
        show_detail(f"step {self._last_step()}")
        return None if states & {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"} else "ended"

    def _interruptible(self, show_detail: Callable[[str], None]) -> str | None:
        self._fail_if_ended(self._job()["job_state"])
        step = self._last_step()
        show_detail(f"step {step}")
        return "reached" if step >= INTERRUPT_AFTER_STEP else None

    def _fail_if_ended(self, states: list[str]) -> None:
        if {"FAILED", "CANCELLED", "TIMEOUT", "COMPLETED"} & set(states):
            raise self._job_failure(f"job {self.job_id} ended early: {'+'.join(states)}")

    def _job_failure(self, message: str) -> PhaseFailed:
        return PhaseFailed(
            message,
            remedy="its output is below; `toolkit login` opens a shell to look further",
            evidence=self._tail(f"{HOME}/slurm-{self.job_id}.out"),
        )

    def _last_step(self) -> int:
        line = self._tail(f"{self._run_dir}/steps.jsonl", 1).strip()
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError):
            return 0  # there is no file yet, or the line is incomplete

    def _tail(self, path: str, lines: int = 20) -> str:
        """Return the last lines of a file on the head node.

        Without the file it is "".
        """
        # The shell hides tail's failure: Head.run raises for an exit code other than 0.
        return self.head.run(
            ["sh", "-c", 'tail -n "$1" -- "$2" 2>/dev/null || true', "tail", str(lines), path]
        )

    def _wait_for(self, check: Callable[[], T | None], failure: str) -> T:
        """Return the first answer of the check that is not None.

        Raises PhaseFailed after PATIENCE. The check may raise it earlier.
        """
        deadline = self.clock() + PATIENCE
        while (result := check()) is None:
            if self.clock() > deadline:
                raise PhaseFailed(
                    f"{failure} within {PATIENCE:.0f} s",
                    remedy="`toolkit status` says what is unhealthy; /var/log/slurm-toolkit on the"
                    " head node has the engine's logs",
                    evidence=self._tail("/var/log/slurm/slurmctld.log"),
                )
            self.sleep(POLL_SECONDS)
        return result
