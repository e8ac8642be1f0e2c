"""The phases of the demonstration, in order. Each method is one, and checks its own claims."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from slurmplugins.cloud import tags
from toolkit.config import load
from toolkit.demo.phases import PhaseFailed, Stage
from toolkit.deploy.head import Head
from toolkit.deploy.session import Clients

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.demo.commands import ToolkitCommand

USER = "ada"
HOME = f"/shared/home/{USER}"
SCRIPT = "/shared/jobscripts/torchrun.sbatch"
TRAINING = "/shared/jobscripts/digits/train.py"
PYTHON = "/shared/env/bin/python"
EPOCHS = 14  # 210 steps: long enough to be interrupted, short enough to watch
INTERRUPT_AFTER_STEP = 40  # late enough that a restart from zero would be visible
LEAST_ACCURACY = 0.95
POLL_SECONDS = 1.0

T = TypeVar("T")


@dataclass(slots=True)
class Story:
    """A run of the demo against one cluster."""

    toolkit: ToolkitCommand
    stage: Stage
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    job: str = ""
    _head: Head | None = field(default=None, init=False)

    def tell(self) -> None:
        """Play every phase; raises PhaseFailed at the first failure."""
        self.start_cloud()
        self.deploy()
        self.submit()
        lost = self.train_until_interrupted()
        self.come_back(lost)
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
        with self.stage.phase("Start the local cloud") as say:
            self.toolkit.follow(
                ["local", "up"],
                say,
                remedy="`make clean` removes what an earlier run left; then try again",
            )

    def deploy(self) -> None:
        with self.stage.phase("Deploy the cluster") as say:
            self.toolkit.follow(
                ["deploy", "--config", str(self.toolkit.config)],
                say,
                remedy="`toolkit status` says what is unhealthy; `make clean` starts over",
            )

    def submit(self) -> None:
        """Submit as an ordinary user, with plain sbatch."""
        with self.stage.phase(f"Submit as {USER}") as say:
            script = [SCRIPT, TRAINING, "--epochs", str(EPOCHS)]
            argv = ["sbatch", "--parsable", f"--chdir={HOME}", *script]
            self.job = self._as_user(argv).strip().split(";")[0]
            if not self.job.isdigit():
                raise PhaseFailed(
                    f"sbatch answered {self.job!r}", remedy="`toolkit login`, then try sbatch there"
                )
            say(f"$ sbatch {' '.join(script)}  → job {self.job}")

    def train_until_interrupted(self) -> str:
        """Wait for steps, then have EC2 interrupt one instance.

        Returns the id of that instance.
        """
        with self.stage.phase("Burst: two spot machines") as say:
            self._wait(lambda: self._running(say), 150, "the job did not start")
            nodes = self._allocated_nodes()
            say(f"{', '.join(nodes)} = {', '.join(self._instances(nodes))}")
            (lost,) = self._instances(nodes[-1:])
        with self.stage.phase("Train") as say:
            self._wait(lambda: self._reached(INTERRUPT_AFTER_STEP, say), 90, "no training steps")
        with self.stage.phase("Interrupt a machine") as say:
            self.toolkit.follow(
                ["local", "interrupt", nodes[-1]],
                say,
                remedy="`toolkit local status` lists machines",
            )
            say(f"EC2's two-minute notice for {nodes[-1]}")
        return lost

    def come_back(self, lost: str) -> None:
        """Check that the job saves, is requeued and runs elsewhere.

        It stops at a step boundary, and runs again on instances other than `lost`.
        """
        with self.stage.phase("Checkpoint and requeue") as say:
            self._wait(lambda: self._restarted(say), 60, "the job was not requeued")
        with self.stage.phase("Come back without it") as say:
            self._wait(lambda: self._running(say), 150, "the job did not start again")
            instances = self._instances(self._allocated_nodes())
            if lost in instances:
                raise PhaseFailed(
                    f"the job came back on the machine that EC2 takes back: {lost}",
                    remedy="`toolkit status` and the node agent's log show what they saw",
                )
            say(", ".join(instances))

    def finish(self) -> None:
        with self.stage.phase("Train to the end") as say:
            self._wait(lambda: self._ended(say), 180, "the job did not end")
            state = self._job()["job_state"]
            if "COMPLETED" not in state:
                raise PhaseFailed(
                    f"job {self.job} ended {'+'.join(state)}",
                    remedy="its output is below; `toolkit login` opens a shell to look further",
                    evidence=self._tail(f"{HOME}/slurm-{self.job}.out"),
                )

    def audit(self) -> None:
        """Check that each step and sample counted once, and the accuracy."""
        with self.stage.phase("Audit the run") as say:
            found = json.loads(
                self._as_user(
                    [
                        "env",
                        "PYTHONPATH=/shared/lib",
                        PYTHON,
                        "-m",
                        "toolkit.training",
                        "audit",
                        self._run_dir,
                    ]
                )
            )
            result = json.loads(self.head.run(["cat", f"{self._run_dir}/result.json"]))
            accuracy = float(result["accuracy"])
            whole = found["ok"] and not found["repeated"] and len(found["attempts"]) > 1
            if not whole or accuracy <= LEAST_ACCURACY:
                raise PhaseFailed(
                    f"audit {'passed' if whole else 'failed'}, accuracy {accuracy:.1%}",
                    remedy=f"{self._run_dir} on the head node holds the step log",
                    evidence=json.dumps(found, indent=2)[:2000],
                )
            say(
                f"{found['steps']} steps, none lost, none repeated,"
                f" over {len(found['attempts'])} attempts; accuracy {accuracy:.1%}"
            )

    def scale_to_zero(self) -> None:
        with self.stage.phase("Scale to zero") as say:

            def empty() -> str | None:
                left = self._live_instances()
                say(f"{left} compute instances left")
                return "none" if left == 0 else None

            self._wait(empty, 150, "instances were not ended")
            say("EC2 lists no instance of the cluster but the head node")

    # The cluster's state

    @property
    def _run_dir(self) -> str:
        return f"{HOME}/runs/{self.job}"

    def _as_user(self, argv: list[str]) -> str:
        return self.head.run(["runuser", "-u", USER, "--", *argv])

    def _job(self) -> dict[str, Any]:
        """Return Slurm's record of the job.

        Asks again while slurmctld is away: scontrol then lists no job, and exits 0.
        """

        def known() -> dict[str, Any] | None:
            text = self.head.run(["scontrol", "show", "job", self.job, "--json"])
            return next(iter(json.loads(text)["jobs"]), None)

        return self._wait(known, 60, f"slurmctld did not tell of job {self.job}")

    def _allocated_nodes(self) -> list[str]:
        names = self.head.run(["scontrol", "show", "hostnames", self._job()["nodes"]])
        return names.split()

    def _instances(self, nodes: list[str]) -> list[str]:
        text = self.head.run(["scontrol", "show", "node", ",".join(nodes), "--json"])
        return [node["instance_id"] for node in json.loads(text)["nodes"]]

    def _live_instances(self) -> int:
        """Return the number of live compute instances.

        They are all that EC2 lists as anything but terminated.
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

    def _running(self, say: Callable[[str], None]) -> str | None:
        job = self._job()
        states = job["job_state"]
        say(f"job {self.job} {'+'.join(states)} {job.get('state_reason', '')}")
        self._stop_if_over(states)
        return "running" if states == ["RUNNING"] else None

    def _restarted(self, say: Callable[[str], None]) -> str | None:
        job = self._job()
        say(f"job {self.job} {'+'.join(job['job_state'])}")
        return "requeued" if job["restart_cnt"] >= 1 else None

    def _ended(self, say: Callable[[str], None]) -> str | None:
        states = self._job()["job_state"]
        say(f"step {self._step()}")
        return (
            "ended"
            if not {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"} & set(states)
            else None
        )

    def _reached(self, step: int, say: Callable[[str], None]) -> str | None:
        self._stop_if_over(self._job()["job_state"])
        at = self._step()
        say(f"step {at}")
        return "there" if at >= step else None

    def _stop_if_over(self, states: list[str]) -> None:
        if {"FAILED", "CANCELLED", "TIMEOUT", "COMPLETED"} & set(states):
            raise PhaseFailed(
                f"job {self.job} ended early: {'+'.join(states)}",
                remedy="its output is below; `toolkit login` opens a shell to look further",
                evidence=self._tail(f"{HOME}/slurm-{self.job}.out"),
            )

    def _step(self) -> int:
        line = self._tail(f"{self._run_dir}/steps.jsonl", 1).strip()
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError):
            return 0  # there is no file yet, or the line is incomplete

    def _tail(self, path: str, lines: int = 20) -> str:
        # Not `tail -f`, and silent about a file that does not exist yet.
        return self.head.run(
            ["sh", "-c", 'tail -n "$1" -- "$2" 2>/dev/null || true', "tail", str(lines), path]
        )

    def _wait(self, check: Callable[[], T | None], seconds: float, what: str) -> T:
        """Return the first answer of the check. Raises PhaseFailed after `seconds`."""
        deadline = self.clock() + seconds
        while (answer := check()) is None:
            if self.clock() > deadline:
                raise PhaseFailed(
                    f"{what} within {seconds:.0f} s",
                    remedy="`toolkit status` says what is unhealthy; /var/log/slurm-toolkit on the"
                    " head node says what the engine did",
                    evidence=self._tail("/var/log/slurm/slurmctld.log"),
                )
            self.sleep(POLL_SECONDS)
        return answer
