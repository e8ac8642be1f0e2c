"""The demo checks what it shows: a job that comes back on the lost machine has not come back."""

import io
import itertools
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.fakes.scontrol import NO_JOBS
from toolkit.demo.commands import ToolkitCommand
from toolkit.demo.phases import PhaseDisplay, PhaseFailed
from toolkit.demo.story import Demo


class Head:
    """A head node that knows one requeued job, and the machine behind each of its nodes."""

    def __init__(self, machines, outage=0) -> None:
        self.machines, self.outage = machines, outage

    def run(self, argv):
        match argv:
            case ["scontrol", "show", "job", *_] if self.outage > 0:
                self.outage -= 1
                return NO_JOBS
            case ["scontrol", "show", "job", *_]:
                nodes = ",".join(self.machines)
                job = {"job_state": ["RUNNING"], "restart_cnt": 1, "nodes": nodes}
                return json.dumps({"jobs": [job]})
            case ["scontrol", "show", "hostnames", nodes]:
                return nodes.replace(",", "\n")
            case ["scontrol", "show", "node", nodes, "--json"]:
                shown = [{"instance_id": self.machines[node]} for node in nodes.split(",")]
                return json.dumps({"nodes": shown})
        raise AssertionError(argv)


def story(machines, outage=0):
    """A job that came back on these machines, by node."""
    stage, now = PhaseDisplay(Console(file=io.StringIO())), itertools.count()
    told = Demo(
        ToolkitCommand(Path("cluster.yaml")), stage, sleep=lambda _: None, clock=now.__next__
    )
    told.job, told._head = "1", Head(machines, outage)
    return told


def test_one_old_machine_beside_a_new_one_is_no_failure():
    """The machine that nobody took stays, and the job takes it again."""
    story({"gpu-001": "i-kept", "gpu-003": "i-new"}).check_requeue("i-lost")


def test_the_interrupted_machine_among_the_jobs_machines_is_a_failure():
    """Also where the other one is new."""
    with pytest.raises(PhaseFailed, match="i-lost"):
        story({"gpu-002": "i-lost", "gpu-003": "i-new"}).check_requeue("i-lost")


def test_a_slurmctld_that_restarts_is_asked_again():
    story({"gpu-001": "i-kept", "gpu-003": "i-new"}, outage=3).check_requeue("i-lost")


def test_a_slurmctld_that_stays_away_ends_the_phase_and_says_so():
    gone = story({"gpu-001": "i-kept"}, outage=10**6)
    gone.head.run = lambda argv, run=gone.head.run: "" if argv[0] == "sh" else run(argv)
    with pytest.raises(PhaseFailed, match="job 1"):
        gone.check_requeue("i-lost")
