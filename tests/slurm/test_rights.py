"""IAM over the whole tier: what the cluster's roles called, were denied, and never used.

It runs alone, after the lanes and before the cluster is destroyed.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import pytest

from tests.slurm.conftest import toolkit

pytestmark = [pytest.mark.machines, pytest.mark.timeout(600, func_only=True)]

AGENT = "the SSM agent's, which the local cloud does not run"
FLEETS = "one list of resources serves RunInstances and CreateFleet; a fleet has the other action"
TEMPLATES = (
    "of a launch template, which the reference leaves to RunInstances; granted as Karpenter grants"
    " it, since a fleet that is refused is an outage"
)
ZONES = "which zone gets an instance is the free choice of EC2, and of the tests"
REASONS = {
    ("*BuilderRole*", "build", "*", "s3:*", "*"): "an image that exists already needs no builder",
    ("*HeadRole*", "ssm-agent", "*", "*", "*"): AGENT,
    ("*LoginRole*", "ssm-agent", "*", "*", "*"): AGENT,
    ("*HeadRole*", "cluster", "LaunchWithOurTags", "ec2:RunInstances", "*:fleet/*"): FLEETS,
    ("*HeadRole*", "cluster", "Launch*", "ec2:CreateFleet", "*:image/*"): TEMPLATES,
    ("*HeadRole*", "cluster", "Launch*", "ec2:CreateFleet", "*:network-interface/*"): TEMPLATES,
    ("*HeadRole*", "cluster", "Launch*", "ec2:CreateFleet", "*:security-group/*"): TEMPLATES,
    (
        "*HeadRole*",
        "cluster",
        "Launch*",
        "ec2:CreateFleet",
        "*:spot-instances-request/*",
    ): TEMPLATES,
    ("*HeadRole*", "cluster", "Launch*", "ec2:CreateFleet", "*:volume/*"): TEMPLATES,
    ("*HeadRole*", "cluster", "LaunchFromOurNetwork", "ec2:*", "*:snapshot/*"): (
        "EC2 asks for a snapshot where a device mapping names one; kept for images that do"
    ),
    ("*HeadRole*", "cluster", "LaunchFromOurNetwork", "ec2:*", "*:subnet/*"): ZONES,
    ("*HeadRole*", "cluster", "ReadConsolesOfOurInstances", "ec2:GetConsoleOutput", "*"): (
        "read only of instances that never registered"
    ),
    ("*HeadRole*", "cluster", "SeeTheBucket", "s3:ListBucket", "*"): (
        "S3 answers 404 for a missing object only to a role with this right"
    ),
    ("*HeadRole*", "cluster", "KeepRecords", "s3:GetObject", "*"): (
        "the agent and the head read their own records again only after a repeat"
    ),
    ("*HeadRole*", "cluster", "WriteBackups", "s3:AbortMultipartUpload", "*"): (
        "the end of a backup whose upload was cut; parts are not uploaded for small dumps"
    ),
    ("*HeadRole*", "cluster", "AddRecords", "s3:PutObject", "*/records/metrics/*"): (
        "a day's metrics are written when the day is over, and no tier lives that long"
    ),
    ("*JobRole*", "storage", "KeepCheckpoints", "s3:*Multipart*", "*"): (
        "a tier test may have no cut upload to go on with"
    ),
    ("*JobRole*", "storage", "KeepCheckpoints", "s3:DeleteObject", "*"): (
        "a tier's old checkpoints are deleted in tests/contract/training"
    ),
}
"""Reasons for rights that no test uses: role, policy, statement, action, resource."""


@pytest.fixture(scope="module")
def record(cluster):
    del cluster  # its cloud is the one that answers
    return json.loads(toolkit("local", "rights", "--json").stdout)


def test_no_call_of_a_program_was_denied(record):
    """Leave jobs out: they may ask for anything, and test_job_credentials.py does."""
    denied = [call for call in record["calls"] if not call["allowed"]]
    assert [call for call in denied if "JobRole" not in call["role"]] == []


def test_the_roles_of_head_compute_nodes_and_jobs_made_calls(record):
    """Prove that the credentials of each are those of its own role."""
    for role, action in (
        ("HeadRole", "ec2:RunInstances"),
        ("HeadRole", "ec2:CreateFleet"),
        ("HeadRole", "iam:PassRole"),
        ("HeadRole", "s3:PutObject"),
        ("HeadRole", "logs:PutLogEvents"),
        ("HeadRole", "cloudwatch:PutMetricData"),
        ("HeadRole", "cloudwatch:GetMetricData"),
        ("ComputeRole", "logs:CreateLogStream"),
        ("ComputeRole", "secretsmanager:GetSecretValue"),
        ("LoginRole", "secretsmanager:GetSecretValue"),
        ("ComputeRole", "sts:AssumeRole"),
        ("ComputeRole", "sts:TagSession"),
        ("HeadRole", "sts:AssumeRole"),
        ("MlflowRole", "s3:PutObject"),
        ("JobRole", "s3:PutObject"),
    ):
        assert any(role in call["role"] and call["action"] == action for call in record["calls"]), (
            role,
            action,
        )


def test_every_right_was_used_or_has_a_reason_beside_it(record):
    unused = [
        (role, right["policy"], right["statement"], right["action"], right["resource"])
        for role, rights in record["unused"].items()
        for right in rights
    ]
    unexplained = [
        right for right in unused
        if not any(all(map(fnmatchcase, right, patterns)) for patterns in REASONS)
    ]  # fmt: skip
    assert unexplained == []
