"""The demo's check that a requeued job avoids the interrupted instance."""

import io
import itertools
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.fakes.scontrol import NO_JOBS
from toolkit.demo.commands import ToolkitCommand
from toolkit.demo.demo import Demo
from toolkit.demo.phases import PhaseDisplay, PhaseFailed


class Head:
    """A head node with one requeued job.

    Each node of the job has an instance.
    """

    def __init__(self, instances, outage=0) -> None:
        self.instances, self.outage = instances, outage

    def run(self, argv):
        match argv:
            case ["scontrol", "show", "job", *_] if self.outage > 0:
                self.outage -= 1
                return NO_JOBS
            case ["scontrol", "show", "job", *_]:
                nodes = ",".join(self.instances)
                job = {"job_state": ["RUNNING"], "restart_cnt": 1, "nodes": nodes}
                return json.dumps({"jobs": [job]})
            case ["scontrol", "show", "hostnames", nodes]:
                return nodes.replace(",", "\n")
            case ["scontrol", "show", "node", nodes, "--json"]:
                records = [{"instance_id": self.instances[node]} for node in nodes.split(",")]
                return json.dumps({"nodes": records})
        raise AssertionError(argv)


def demo_of(instances, outage=0):
    """Return a demo whose job runs again on these instances, by node."""
    display, now = PhaseDisplay(Console(file=io.StringIO())), itertools.count()
    demo = Demo(
        ToolkitCommand(Path("cluster.yaml")), display, sleep=lambda _: None, clock=now.__next__
    )
    demo.job_id, demo._head = "1", Head(instances, outage)
    return demo


def test_check_requeue_accepts_an_old_instance_beside_a_new_one():
    """Accept an instance that EC2 did not interrupt.

    The job may take the instance's node again.
    """
    demo_of({"gpu-001": "i-kept", "gpu-003": "i-new"}).check_requeue("i-lost")


def test_check_requeue_fails_if_the_job_runs_on_the_interrupted_instance():
    """Fail even if the job's other instance is new."""
    with pytest.raises(PhaseFailed, match="i-lost"):
        demo_of({"gpu-002": "i-lost", "gpu-003": "i-new"}).check_requeue("i-lost")


def test_a_restarting_slurmctld_is_asked_again():
    demo_of({"gpu-001": "i-kept", "gpu-003": "i-new"}, outage=3).check_requeue("i-lost")


def test_a_slurmctld_that_stays_unreachable_fails_the_phase():
    demo = demo_of({"gpu-001": "i-kept"}, outage=10**6)
    demo.head.run = lambda argv, run=demo.head.run: "" if argv[0] == "sh" else run(argv)
    with pytest.raises(PhaseFailed, match="job 1"):
        demo.check_requeue("i-lost")
