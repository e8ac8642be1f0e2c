"""The demo's check that a requeued job avoids the interrupted instance."""

import io
import itertools
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.fakes.scontrol import NO_JOBS
from toolkit.demo.commands import ToolkitCommand
from toolkit.demo.demo import Demo, Interruption
from toolkit.demo.phases import PhaseDisplay, PhaseFailed

LOST = Interruption("i-lost", restarts_before=1)


class Head:
    """A head node with one requeued job.

    Each node of the job has an instance. The job is listed as it was before the requeue for
    `looks_before`, on the interrupted instance.
    """

    def __init__(self, instances, outage=0, looks_before=0) -> None:
        self.instances, self.outage, self.looks_before = instances, outage, looks_before

    def run(self, argv):
        match argv:
            case ["scontrol", "show", "job", *_] if self.outage > 0:
                self.outage -= 1
                return NO_JOBS
            case ["scontrol", "show", "job", *_]:
                before = self.looks_before > 0
                self.looks_before -= 1
                nodes = "gpu-002" if before else ",".join(self.instances)
                restarts = LOST.restarts_before + (0 if before else 1)
                job = {"job_state": ["RUNNING"], "restart_cnt": restarts, "nodes": nodes}
                return json.dumps({"jobs": [job]})
            case ["scontrol", "show", "hostnames", nodes]:
                return nodes.replace(",", "\n")
            case ["scontrol", "show", "node", nodes, "--json"]:
                by_node = {"gpu-002": LOST.instance_id, **self.instances}
                records = [{"instance_id": by_node[node]} for node in nodes.split(",")]
                return json.dumps({"nodes": records})
            case ["sh", "-c", *_, path]:
                return f"the end of {path}"
        raise AssertionError(argv)


def demo_of(instances, outage=0, looks_before=0):
    """Return a demo whose job runs again on these instances, by node."""
    display, now = PhaseDisplay(Console(file=io.StringIO())), itertools.count()
    demo = Demo(
        ToolkitCommand(Path("cluster.yaml")), display, sleep=lambda _: None, clock=now.__next__
    )
    demo.job_id, demo._head = "1", Head(instances, outage, looks_before)
    return demo


def test_check_requeue_accepts_an_old_instance_beside_a_new_one():
    """Accept an instance that EC2 did not interrupt.

    The job may take the instance's node again.
    """
    demo_of({"gpu-001": "i-kept", "gpu-003": "i-new"}).check_requeue(LOST)


def test_check_requeue_fails_if_the_job_runs_on_the_interrupted_instance():
    """Fail even if the job's other instance is new."""
    with pytest.raises(PhaseFailed, match="i-lost") as raised:
        demo_of({"gpu-002": "i-lost", "gpu-003": "i-new"}).check_requeue(LOST)
    assert raised.value.evidence.endswith("/slurm-1.out")


def test_a_restart_before_the_interruption_is_not_taken_for_the_requeue():
    instances = {"gpu-001": "i-kept", "gpu-003": "i-new"}
    demo_of(instances, looks_before=3).check_requeue(LOST)


def test_a_restarting_slurmctld_is_asked_again():
    demo_of({"gpu-001": "i-kept", "gpu-003": "i-new"}, outage=3).check_requeue(LOST)


def test_a_slurmctld_that_stays_unreachable_fails_the_phase():
    demo = demo_of({"gpu-001": "i-kept"}, outage=10**6)
    demo.head.run = lambda argv, run=demo.head.run: "" if argv[0] == "sh" else run(argv)
    with pytest.raises(PhaseFailed, match="job 1"):
        demo.check_requeue(LOST)
