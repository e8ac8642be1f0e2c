"""Reading of SLURM_RESUME_FILE, with valid and with invalid content."""

from __future__ import annotations

import json

import pytest

from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.launch import JobRequest
from slurmplugins.slurm import resume_file

N = [NodeName(f"gpu-00{number}") for number in range(1, 5)]


def written(*jobs: object) -> bytes:
    return json.dumps({"jobs": list(jobs), "all_nodes_resume": "gpu-[001-004]"}).encode()


def test_the_file_of_24_11_as_a_real_slurmctld_wrote_it():
    job = {
        "extra": None,
        "job_id": 1,
        "features": None,
        "nodes_alloc": "gpu-[001-002]",
        "nodes_resume": "gpu-[001-002]",
        "oversubscribe": "OK",
        "partition": "p",
        "reservation": None,
    }
    assert resume_file.job_requests(written(job), "gpu-[001-002]") == (
        JobRequest(1, (N[0], N[1]), "p"),
    )


def test_the_file_of_22_05():
    job = {"job_id": 1, "nodes": "gpu-001"}
    assert resume_file.job_requests(written(job), "gpu-001") == (JobRequest(1, (N[0],)),)


def test_nodes_no_job_lists_are_asked_for_one_by_one():
    job = {"job_id": 1, "nodes_resume": "gpu-001"}
    found = resume_file.job_requests(written(job), "gpu-[001-003]")
    assert found == (JobRequest(1, (N[0],)), JobRequest(None, (N[1],)), JobRequest(None, (N[2],)))


def test_a_node_two_jobs_wait_for_is_launched_once():
    jobs = (
        {"job_id": 1, "nodes_resume": "gpu-001"},
        {"job_id": 2, "nodes_resume": "gpu-[001-002]"},
    )
    found = resume_file.job_requests(written(*jobs), "gpu-[001-002]")
    assert found == (JobRequest(1, (N[0],)), JobRequest(2, (N[1],), shared_nodes=(N[0],)))


def test_a_job_all_of_whose_nodes_others_bring_is_told_of():
    jobs = (
        {"job_id": 1, "nodes_resume": "gpu-[001-002]"},
        {"job_id": 2, "nodes_resume": "gpu-002"},
    )
    found = resume_file.job_requests(written(*jobs), "gpu-[001-002]")
    assert found == (JobRequest(1, (N[0], N[1])), JobRequest(2, (), shared_nodes=(N[1],)))


def test_nodes_of_the_file_that_the_argument_lacks_are_not_launched():
    job = {"job_id": 1, "nodes_resume": "gpu-[001-002]"}
    assert resume_file.job_requests(written(job), "gpu-001") == (JobRequest(1, (N[0],)),)


def test_a_node_of_another_kind_in_the_argument_spoils_nothing():
    job = {"job_id": 1, "nodes_resume": "gpu-[001-002]"}
    odd: list[str] = []
    found = resume_file.job_requests(written(job), "gpu-[001-003],node01", odd)
    assert found == (JobRequest(1, (N[0], N[1])), JobRequest(None, (N[2],)))
    assert odd == ["node01"]


def test_without_an_argument_the_file_alone_counts():
    job = {"job_id": 1, "nodes_resume": "gpu-[001-002]"}
    assert resume_file.job_requests(written(job), "") == (JobRequest(1, (N[0], N[1])),)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"[]",
        b'{"jobs": 3}',
        b'{"jobs": [3, null, {}]}',
        b'{"jobs": [{"job_id": "x", "nodes_resume": "gpu-001"}]}',
        b'{"jobs": [{"job_id": true, "nodes_resume": "gpu-001"}]}',
        b'{"jobs": [{"job_id": 1, "nodes_resume": "$(id)"}]}',
        b"\xff\xfe",
        b"[" * 200_000,
    ],
)
def test_an_invalid_file_still_gets_every_node_launched(content: bytes | None):
    assert resume_file.job_requests(content, "gpu-[001-002]") == (
        JobRequest(None, (N[0],)),
        JobRequest(None, (N[1],)),
    )


@pytest.mark.parametrize(
    "number", ["7", "07", {"set": True, "infinite": False, "number": 7}, {"number": "7"}]
)
def test_a_jobs_number_is_read_as_any_version_writes_it(number: object):
    content = json.dumps({"jobs": [{"job_id": number, "nodes_resume": "gpu-[001-002]"}]}).encode()
    assert resume_file.job_requests(content, "gpu-[001-002]") == (JobRequest(7, tuple(N[:2])),)


@pytest.mark.parametrize(
    "number", [None, [7], {}, {"set": False, "number": 7}, "x", "1" * 5000, 7.0, -7, True]
)
def test_nodes_of_a_job_with_an_invalid_number_are_one_request(number: object):
    content = json.dumps({"jobs": [{"job_id": number, "nodes_resume": "gpu-[001-002]"}]}).encode()
    assert resume_file.job_requests(content, "gpu-[001-002]") == (JobRequest(None, tuple(N[:2])),)


def test_bytes_that_are_no_text_in_one_job_spoil_no_other():
    content = b'{"jobs": [{"job_id": 7, "nodes_resume": "gpu-[001-002]", "name": "\xff\xfe"}]}'
    assert resume_file.job_requests(content, "gpu-[001-002]") == (JobRequest(7, tuple(N[:2])),)


def test_nodes_of_another_tool_leave_ours_of_the_same_job_together():
    nodes = "rack1,gpu-[001-002],zzz-[0-999999]"
    content = json.dumps({"jobs": [{"job_id": 7, "nodes_resume": nodes}]}).encode()
    assert resume_file.job_requests(content, "gpu-[001-002]") == (JobRequest(7, tuple(N[:2])),)
