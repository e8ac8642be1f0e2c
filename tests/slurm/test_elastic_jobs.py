"""Jobs that resume on fewer nodes than they had."""

from __future__ import annotations

import json

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.training_job import HOME, ON_FARM, PYTHON, paced, submit
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SBATCH = "/shared/jobscripts/fsdp.sbatch"
TRAIN = (
    *("/shared/jobscripts/fsdp/train.py", "--epochs", "14"),
    *("--sequences", "256", "--length", "16", "--width", "32", "--layers", "2"),
)
REASON = "a new disk"
ONLY_THREE = "--exclude=farm-[004-020]"
ONLY_TWO = "farm-[003-020]"


def are_free(cluster, nodes: str) -> bool:
    """Return whether all these nodes are free now.

    Slurm starts a job with a range of nodes on the nodes that are free. Nodes that still power down
    are not.
    """
    records = json.loads(cluster.run("scontrol", "show", "nodes", nodes, "--json"))["nodes"]
    other = {"POWERING_DOWN", "POWERING_UP", "COMPLETING", "DRAIN"}
    return all("IDLE" in node["state"] and not other & set(node["state"]) for node in records)


def test_a_job_with_a_range_of_nodes_resumes_on_the_nodes_that_are_left(cluster):
    """Interrupt a node of the job that a person has drained.

    The interruption notice keeps the person's reason on the node.
    """
    until("three free nodes", lambda: are_free(cluster, "farm-[001-003]"))
    job = submit(cluster, *ON_FARM, "--nodes=2-4", ONLY_THREE, SBATCH, paced(cluster), *TRAIN)
    step_before = job.trained(5)
    interrupted_node = job.nodes()[-1]
    cluster.run(
        "scontrol", "update", f"nodename={interrupted_node}", "state=drain", f"reason={REASON}"
    )
    toolkit("local", "interrupt", interrupted_node, "--notice", "120")
    until("the requeue", lambda: job.states() == {"PENDING"})
    assert f"Reason={REASON}" in cluster.run("scontrol", "show", "node", interrupted_node)
    cluster.as_user("scontrol", "update", f"jobid={job.number}", f"excnodelist={ONLY_TWO}")

    assert job.attempt(1)["step_start"] >= step_before
    assert job.ended() == {"COMPLETED"}, job.output()
    # The instance is gone, and other tests need the node.
    cluster.run("scontrol", "update", f"nodename={interrupted_node}", "state=undrain")
    assert [attempt["world_size"] for attempt in job.attempts()] == [3, 2]
    assert job.causes() == ["spot-interruption", "finished"]
    audit = cluster.as_user(*PYTHON, "-m", "toolkit.training", "audit", f"{HOME}/runs/{job.number}")
    assert json.loads(audit)["ok"], audit


def test_slurmctld_shows_the_minimum_and_maximum_nodes_of_a_pending_job(cluster):
    """Check the two fields that `toolkit why` reads."""
    job = submit(cluster, "--hold", "--nodes=2-4", SBATCH, *TRAIN)
    assert (job.record()["node_count"]["number"], job.record()["max_nodes"]["number"]) == (2, 4)
    cluster.as_user("scontrol", "update", f"jobid={job.number}", "numnodes=2")
    assert (job.record()["node_count"]["number"], job.record()["max_nodes"]["number"]) == (2, 2)
    cluster.as_user("scancel", job.number)
