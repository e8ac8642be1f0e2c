"""The queue, its partitions and their nodes, as real Slurms print them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmplugins.errors import SlurmRefused, SlurmUnreachable
from slurmplugins.model.queued_job import count_tasks
from slurmplugins.slurm import queue_parser
from slurmplugins.slurm.queue import Queue
from tests.fakes.runner import FakeRunner

CAPTURED = Path(__file__).parents[3] / "golden/slurm"


def captured(version: str, name: str) -> list[dict]:
    key = name.removeprefix("scontrol-")
    return json.loads((CAPTURED / version / f"{name}.json").read_text())[key]


@pytest.mark.parametrize("version", ["24.11", "25.11", "26.05"])
def test_jobs_of_each_version_are_read(version: str):
    records = captured(version, "scontrol-jobs")
    jobs = {job.id: job for job in map(queue_parser.queued_job, records) if job is not None}
    assert len(jobs) == len(records)
    array, held, component = jobs[7], jobs[9], jobs[11]
    assert (array.label, array.tasks, array.pending) == ("7_[1-3]", 3, True)
    assert array.eligible_at is None
    assert held.held
    assert held.account == "handmade"
    assert component.het_job
    assert (component.request.nodes, component.request.cpus) == (2, 2)
    assert component.request.memory_mib == 7782
    assert jobs[12].running
    assert jobs[12].booting
    assert jobs[12].time_limit == 86_400


@pytest.mark.parametrize("version", ["24.11", "25.11", "26.05"])
def test_partitions_of_each_version_have_their_nodes(version: str):
    partitions = queue_parser.partitions(
        captured(version, "scontrol-partitions"),
        captured(version, "scontrol-nodes"),
        lambda partition, node: "1.006" if node.startswith("gpu-") else partition,
    )
    spot = partitions["spot"]
    assert (spot.up, spot.tier, spot.factor, spot.max_time) == (True, 1, 1, 86_400)
    (group,) = spot.groups
    assert (group.count, group.cpus, dict(group.gpus)) == (4, 4, {"a10g": 1})
    assert group.usd_per_hour == "1.006"
    assert "gpu" in group.features


def test_who_may_use_a_partition_is_read():
    (record,) = [p for p in captured("24.11", "scontrol-partitions") if p["name"] == "spot"]
    record |= {"accounts": {"allowed": "vision,language", "deny": ""}, "qos": {"deny": "long"}}
    record |= {"groups": {"allowed": "staff"}}
    partition = queue_parser.partitions([record], [], lambda *_: "0")["spot"]
    assert partition.allowed_accounts == ("vision", "language")
    assert partition.denied_qos == ("long",)
    assert partition.for_groups


def test_gpus_of_a_request_are_read_with_their_kind():
    record = dict(captured("24.11", "scontrol-jobs")[0])
    record["tres_req_str"] = "cpu=16,mem=1.50T,node=2,billing=9,gres/gpu=8,gres/gpu:h100=8"
    job = queue_parser.queued_job(record)
    assert job is not None
    assert (job.request.gpus, job.request.gpu) == (8, "h100")
    assert job.request.memory_mib == 1024**2
    record["tres_req_str"] = "cpu=1,gres/shard=2,gres/shard:a10g=2,gres/gpumem=0"
    job = queue_parser.queued_job(record)
    assert job is not None
    assert job.request.other_gres == ("shard",)


@pytest.mark.parametrize(
    ("key", "tres", "gpus", "gpu", "other"),
    [
        ("tres_per_node", "gres/gpu:h100:4", 4, "h100", ()),
        ("tres_per_job", "gres:gpu:2", 2, "", ()),
        ("tres_per_task", "cpu=2,gres/gpu", 1, "", ()),
        ("tres_per_node", "gres/gpu:2080ti=1,gres/shard:3", 1, "2080ti", ("shard",)),
        ("tres_per_socket", "gres/gpu:a10g:1,gres/gpu:l4:1,gres/fpga", 1, "", ("fpga",)),
        ("tres_per_task", "license/matlab:1", 0, "", ()),
    ],
)
def test_gres_that_accounting_does_not_count_are_read_too(key, tres, gpus, gpu, other):
    job = queue_parser.queued_job({**captured("24.11", "scontrol-jobs")[0], key: tres})
    assert job is not None
    assert (job.request.gpus, job.request.gpu, job.request.other_gres) == (gpus, gpu, other)


@pytest.mark.parametrize(
    ("key", "value"),
    [("job_id", "x"), ("account", 3), ("time_limit", {"number": "a day"}), ("job_state", [1])],
)
def test_a_record_that_can_not_be_read_is_no_job(key: str, value: object):
    assert queue_parser.queued_job({**captured("24.11", "scontrol-jobs")[0], key: value}) is None


def test_a_constraint_of_features_alone_is_understood():
    record = dict(captured("24.11", "scontrol-jobs")[0])
    record["features"] = "nvme&efa"
    job = queue_parser.queued_job(record)
    assert job is not None
    assert job.request.features == ("nvme", "efa")
    record["features"] = "[a*2&b]"
    job = queue_parser.queued_job(record)
    assert job is not None
    assert (job.request.features, job.constraint) == ((), "[a*2&b]")


@pytest.mark.parametrize(
    ("text", "tasks"), [("1-3%1", 3), ("0,4,9", 3), ("0-10:5", 3), ("", 1), ("1-4,...", 4)]
)
def test_tasks_are_counted(text: str, tasks: int):
    assert count_tasks(text) == tasks


def test_a_list_of_tasks_that_slurm_cut_off_is_changed_by_the_arrays_number():
    record = next(r for r in captured("24.11", "scontrol-jobs") if r["job_id"] == 7)
    job = queue_parser.queued_job({**record, "array_task_string": "1,3,5,..."})
    assert job is not None
    assert job.label == "7"


def test_partitions_are_changed_by_one_call_and_a_refusal_is_told():
    runner = FakeRunner()
    queue = Queue(runner, "/usr/bin")
    queue.set_partitions("7_[1-3]", ("rack", "cloud"))
    assert runner.commands == [
        ["/usr/bin/scontrol", "update", "jobid=7_[1-3]", "partition=rack,cloud"]
    ]
    runner.answer("/usr/bin/scontrol", "update", returncode=1, stderr="Job is no longer pending")
    with pytest.raises(SlurmRefused, match="no longer pending"):
        queue.set_partitions("7", ("rack",))


def test_a_slurmctld_that_does_not_answer_has_no_partitions():
    runner = FakeRunner()
    runner.answer("/usr/bin/scontrol", "show", returncode=1, stderr="Unable to contact slurm")
    with pytest.raises(SlurmUnreachable):
        Queue(runner, "/usr/bin").partitions(lambda *_: "0")
