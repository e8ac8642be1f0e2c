"""Compare pyslurm's answers with those of scontrol and squeue (docs/adr/0033).

`capture_pyslurm.py` kept both, about the same moment. A later pyslurm may close the differences.
Then the expected ones below are no longer true, and the decision can be taken again.
"""

import json
from dataclasses import fields

import pytest

from slurmplugins.head.job_history import JobReader
from slurmplugins.head.report import HeadReport, JobReport
from slurmplugins.model.hostlist import expand
from tests.golden.slurm.recorded import Recorded, RecordedHead
from toolkit.explain.job import explain
from toolkit.slurm_nodes import NodeInfo, read_nodes

ANSWERS = "pyslurm-25.11"


@pytest.fixture(scope="module")
def recorded():
    return Recorded(ANSWERS)


@pytest.fixture(scope="module")
def pyslurm(recorded):
    return json.loads(recorded.text("pyslurm.json"))


def node_of(row):
    """Return a node, as far as pyslurm knows it."""
    return NodeInfo(
        name=row["name"],
        states=frozenset(row["state"].split("+")),
        cpus=row["total_cpus"],
        memory_mib=row["real_memory"],
        gpus=sum(number for name, number in row["configured_gres"].items() if "gpu" in name),
        partitions=tuple(row["partitions"]),
        instance_id="",
        instance_type="",
        address=row["address"] or "",
        reason=row["reason"] or "",
        version=row["slurm_version"] or "",
    )


def job_of(row):
    """Return a job, as far as pyslurm knows it."""
    limit = f"%{row['array_tasks_parallel']}" if row["array_tasks_parallel"] else ""
    waiting = row["array_tasks_waiting"]
    return JobReport(
        id=row["id"],
        name=row["name"] or "",
        user=row["user_name"] or "",
        account=row["account"] or "",
        partition=row["partition"] or "",
        states=(row["state"],),
        reason=row["state_reason"] or "",
        nodes=expand(row["allocated_nodes"] or ""),
        node_count=row["num_nodes"] or 0,
        restarts=row["requeue_count"],
        submitted_at=row["submit_time"] or None,
        eligible_at=row["eligible_time"] or None,
        started_at=row["start_time"] or None,
        admin_comment=row["admin_comment"] or "",
        comment=row["comment"] or "",
        held=row["priority"] == 0,
        array=row["array_id"] or 0,
        task=row["array_task_id"],
        waiting=f"{waiting}{limit}" if waiting else "",
        most_nodes=row["max_nodes"] or 0,
    )


def differences(left, right):
    """Return the values of both where they differ, by field."""
    pairs = {
        item.name: (getattr(left, item.name), getattr(right, item.name)) for item in fields(left)
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def test_of_nodes_pyslurm_lacks_what_the_instance_is(recorded, pyslurm):
    nodes = {node.name: node for node in read_nodes(RecordedHead(ANSWERS))}
    found = {row["name"]: differences(nodes[row["name"]], node_of(row)) for row in pyslurm["nodes"]}
    assert sorted(found) == sorted(nodes)
    assert {name: item for name, item in found.items() if item} == {
        "gpu-001": {
            "instance_id": ("i-0123456789abcdef0", ""),
            "instance_type": ("g5.xlarge", ""),
        }
    }
    assert not [name for name in pyslurm["node_attributes"] if "instance" in name]


def test_of_jobs_pyslurm_lacks_states_and_task_0(recorded, pyslurm):
    jobs = {job.id: job for job in JobReader(recorded, "/usr/bin").jobs()}
    names = {number: name for name, number in recorded.jobs.items()}
    found = {
        names.get(row["id"]) or f"{names[row['array_id']]}_0": differences(
            jobs[row["id"]], job_of(row)
        )
        for row in pyslurm["jobs"]
        if row["id"] in jobs and (row["id"] in names or row["array_id"])
    }
    assert {name: item for name, item in found.items() if item} == {
        "array_0": {"task": (0, None)},
        "powering-up": {"states": (("RUNNING", "CONFIGURING", "POWER_UP_NODE"), ("CONFIGURING",))},
        "completing": {"states": (("CANCELLED", "COMPLETING"), ("COMPLETING",))},
        "requeueing": {"states": (("PENDING", "COMPLETING"), ("COMPLETING",))},
    }
    assert {"requeued", "array", "held", "het", "range", "dependent", "resources"} <= set(found)


def test_why_would_take_a_booting_job_for_one_that_has_ended(recorded, pyslurm):
    number = recorded.jobs["powering-up"]
    (job,) = (job for job in JobReader(recorded, "/usr/bin").jobs() if job.id == number)
    (other,) = (job_of(row) for row in pyslurm["jobs"] if row["id"] == number)
    verdicts = [explain(HeadReport(at=0.0, jobs=(item,)), number).verdict for item in (job, other)]
    assert verdicts[0].startswith("running")
    assert verdicts[1] == "configuring: see its attempts"


def test_pyslurm_lists_jobs_that_have_ended_too(recorded, pyslurm):
    listed = {job.id for job in JobReader(recorded, "/usr/bin").jobs()}
    ended = {row["state"] for row in pyslurm["jobs"] if row["id"] not in listed}
    assert ended == {"FAILED", "COMPLETED", "CANCELLED"}
