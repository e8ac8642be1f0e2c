"""Jobs' own AWS credentials: from the broker of their node, for their user's prefix alone."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.slurm.training_job import HOME, ON_FARM, PYTHON
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
ON_ONE = (*ON_FARM, "--nodes=1", "--time=20")

STORE = """
import boto3, json, sys
from pathlib import Path
from botocore.exceptions import ClientError
from toolkit.training.io.cluster_info import site_facts
from toolkit.training.io.s3_client import s3_client

user, other = sys.argv[1:]
bucket, _, folder = site_facts()["checkpoints"].removeprefix("s3://").partition("/")
client = s3_client(2)
plain = boto3.client(
    "sts", region_name=site_facts()["aws_region"], endpoint_url=site_facts()["aws_endpoint_url"]
)
answers = {"arn": plain.get_caller_identity()["Arn"]}
calls = {
    "own": lambda: client.put_object(Bucket=bucket, Key=f"{folder}/{user}/run/x", Body=b"mine"),
    "read": lambda: client.get_object(Bucket=bucket, Key=f"{folder}/{user}/run/x"),
    "other": lambda: client.put_object(Bucket=bucket, Key=f"{folder}/{other}/run/x", Body=b"bad"),
    "theirs": lambda: client.get_object(Bucket=bucket, Key=f"{folder}/{other}/run/x"),
    "bundle": lambda: client.get_object(Bucket=bucket, Key="bundle/any.zip"),
}
for name, call in calls.items():
    try:
        call()
        answers[name] = "done"
    except ClientError as error:
        answers[name] = str(error)
print(json.dumps(answers))
"""
TIER = """
import sys
from pathlib import Path
from toolkit.training.checkpoint.hashed_file import HashingWriter
from toolkit.training.checkpoint.s3_tier import S3Tier

tier = S3Tier.of_cluster(sys.argv[1])
found = tier.unfinished()
folder = Path(sys.argv[2]) / "step-00000001.000001"
folder.mkdir(parents=True)
with HashingWriter(folder / "model", "sha256") as writer:
    writer.write(b"weights")
entry = writer.entry()
tier.push(folder, [entry])
print(found, tier._digest(folder.name, "model") == entry.digest)
"""
THEFT = """
import sys, urllib.error, urllib.request
from pathlib import Path
folder = Path("/run/slurm-toolkit/jobs") / sys.argv[1]
for file in ("token", "record.json"):
    try:
        (folder / file).read_text()
        print(file, "read")
    except PermissionError:
        print(file, "refused")
for token in ("", sys.argv[1] + "." + "0" * 64):
    request = urllib.request.Request("http://127.0.0.1:817/credentials")
    request.add_header("Authorization", token)
    try:
        urllib.request.urlopen(request)
        print("given")
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""


def srun(cluster, user, *argv):
    home = f"/shared/home/{user}"
    return cluster.run(
        "runuser", "-u", user, "--", "env", f"HOME={home}", "srun", *ON_ONE, f"--chdir={home}",
        *argv, timeout=900,
    )  # fmt: skip


def test_a_job_stores_below_its_users_prefix_and_is_refused_anothers_in_awss_words(cluster):
    for user, other in (("ada", "grace"), ("grace", "ada")):
        said = json.loads(srun(cluster, user, *PYTHON, "-c", STORE, user, other))
        assert said["own"] == said["read"] == "done", said
        assert f"-{user}" in said["arn"]
        assert "JobRole" in said["arn"]
        for name in ("other", "theirs", "bundle"):
            assert "AccessDenied" in said[name], said
        assert "is not authorized to perform: s3:PutObject" in said["other"]


def test_a_checkpoint_tier_in_s3_is_filled_and_found_by_a_later_job(cluster):
    name = f"ada/{uuid.uuid4().hex}"
    first, later = (
        srun(cluster, "ada", *PYTHON, "-c", TIER, name, f"{HOME}/{name}-{number}").strip()
        for number in range(2)
    )
    assert first == "[] True"
    assert later == "['step-00000001.000001'] True"


def test_a_batch_script_has_the_variables_and_a_file_that_its_user_alone_can_read(cluster):
    script = cluster.write(
        f"{HOME}/variables.sh",
        "#!/bin/sh\n"
        "echo $AWS_CONTAINER_CREDENTIALS_FULL_URI\n"
        "stat --format='%a %U' $AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE\n",
    )
    cluster.as_user("chmod", "700", script)
    number = cluster.as_user(
        "sbatch", "--parsable", "--wait", *ON_ONE, f"--chdir={HOME}",
        f"--output={HOME}/variables.out", "--open-mode=truncate", script,
    ).strip()  # fmt: skip
    assert cluster.run("cat", f"{HOME}/variables.out").split("\n")[:2] == [
        "http://127.0.0.1:817/credentials",
        "400 ada",
    ], number


def test_another_users_process_on_the_same_node_can_not_use_a_jobs_token(cluster):
    number = cluster.as_user(
        "sbatch", "--parsable", "--partition=batch", "--gpus-per-node=0", "--nodes=1", "--time=20",
        "--cpus-per-task=1", "--mem=100", f"--chdir={HOME}", "--output=/dev/null",
        "--wrap=sleep 900",
    ).strip()  # fmt: skip
    until("ada's job", lambda: cluster.job(number)["job_state"] == ["RUNNING"])
    node = cluster.job(number)["nodes"]
    said = cluster.run(
        "runuser", "-u", "grace", "--", "srun", "--partition=batch", "--gpus-per-node=0",
        f"--nodelist={node}", "--cpus-per-task=1", "--mem=100", "--time=20",
        "--chdir=/shared/home/grace", "python3", "-c", THEFT, number, timeout=900,
    ).splitlines()  # fmt: skip
    cluster.as_user("scancel", number)
    assert said[:2] == ["token refused", "record.json refused"]
    assert [line[:3] for line in said[2:]] == ["403", "403"]
    assert "no job on this node has this token" in said[2]


def test_a_token_ends_with_its_job(cluster):
    said = srun(
        cluster, "ada", "sh", "-c",
        "echo $SLURMD_NODENAME; cat $AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    ).split()  # fmt: skip
    node, token = said
    check = (
        "import sys, urllib.request, urllib.error\n"
        "r = urllib.request.Request('http://127.0.0.1:817/credentials')\n"
        "r.add_header('Authorization', sys.argv[1])\n"
        "try: print(urllib.request.urlopen(r).status)\n"
        "except urllib.error.HTTPError as e: print(e.code)\n"
    )

    def answer() -> bool:
        again = srun(cluster, "ada", f"--nodelist={node}", "python3", "-c", check, token)
        return again.split() == ["403"]

    until("the end of the token", answer)
