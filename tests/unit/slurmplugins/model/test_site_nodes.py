"""slurmctld's call, divided between us and the site that we joined."""

from __future__ import annotations

import json

import pytest

from slurmplugins.model.site_nodes import divide, sites_resume_file

OWN = frozenset({"gpu-001", "gpu-002", "gpu-003"})


@pytest.mark.parametrize(
    ("hostlist", "own", "others"),
    [
        ("gpu-001", "gpu-001", ""),
        ("gpu-[001-003]", "gpu-[001-003]", ""),
        ("rack[1-4]", "", "rack[1-4]"),
        ("rack[1-4],gpu-[001-002]", "gpu-[001-002]", "rack[1-4]"),
        ("gpu-[001-005]", "gpu-[001-003]", "gpu-[004-005]"),
        ("R7.lab,r1-n[1,3]-ib,gpu-002", "gpu-002", "R7.lab,r1-n[1,3]-ib"),
        ("gpu-1", "", "gpu-1"),
        ("gpu-[1-30000]", "", "gpu-[1-30000]"),
        ("", "", ""),
    ],
)
def test_each_node_is_ours_or_the_sites(hostlist, own, others):
    assert divide(hostlist, OWN) == (own, others)


def resume_file(**document):
    return json.dumps(document).encode()


def test_the_sites_program_sees_its_own_nodes_alone():
    content = resume_file(
        all_nodes_resume="gpu-[001-002],rack[1-2]",
        jobs=[
            {"job_id": 7, "nodes_resume": "gpu-001,rack1", "nodes_alloc": "gpu-001,rack[1,9]"},
            {"job_id": 8, "nodes_resume": "gpu-002", "extra": "x"},
            {"job_id": 9, "nodes_resume": "rack2", "partition": "main"},
        ],
    )
    assert json.loads(sites_resume_file(content, OWN)) == {
        "all_nodes_resume": "rack[1-2]",
        "jobs": [
            {"job_id": 7, "nodes_resume": "rack1", "nodes_alloc": "gpu-001,rack[1,9]"},
            {"job_id": 9, "nodes_resume": "rack2", "partition": "main"},
        ],
    }


def test_the_keys_of_22_05_are_divided_too():
    content = resume_file(all_nodes="gpu-001,r1", jobs=[{"job_id": 1, "nodes": "gpu-001,r1"}])
    assert json.loads(sites_resume_file(content, OWN)) == {
        "all_nodes": "r1",
        "jobs": [{"job_id": 1, "nodes": "r1"}],
    }


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff"])
def test_a_resume_file_that_cannot_be_read_is_not_handed_on(content):
    assert sites_resume_file(content, OWN) is None
