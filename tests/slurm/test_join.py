"""Cloud nodes in the Slurm of a site that the toolkit did not build: joined, used and removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.slurm import racks
from tests.slurm.conftest import new_key, toolkit
from tests.slurm.waiting import PATIENCE, until
from toolkit.config import load
from toolkit.deploy.session import Clients

pytestmark = [pytest.mark.machines, pytest.mark.timeout(1200, func_only=True)]
NEW_FILE = "toolkit-burst.conf"


class Joined:
    """The lab, and cluster.yaml of the join."""

    def __init__(self, lab, path) -> None:
        self.lab, self.path = lab, path

    def toolkit(self, *words, code=0):
        group = words[:2] if words[0] == "join" else words[:1]
        rest = words[len(group) :]
        done = toolkit(
            *group, "--config", str(self.path), *rest, may_fail=True, timeout=PATIENCE * 4
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def submit(self, *words):
        argv = ("sbatch", "--parsable", "--output=/dev/null", *words)
        return self.lab.run("runuser", "-u", "ada", "--", *argv).strip()

    def job(self, number):
        text = self.lab.run("scontrol", "show", "job", number, "--json", may_fail=True)
        (job,) = json.loads(text)["jobs"]
        return job

    def state(self, number):
        return self.job(number)["job_state"][0]


@pytest.fixture(scope="module")
def joined(cluster, state):
    config = load(cluster.config)
    lab = racks.build(Clients(config), config, state / "lab", new_key(state / "lab"))
    path = state / "join.yaml"
    try:
        with path.open("w") as file:
            YAML().dump(settings(config, lab), file)
        yield Joined(lab, path)
    finally:
        toolkit("join", "remove", "--config", str(path), "--yes", may_fail=True, timeout=PATIENCE)
        racks.tear_down(lab)


def settings(config, lab):
    """Return cluster.yaml of the join."""
    return {
        "kind": "join",
        "cluster": "burst",
        "profile": "local",
        "aws": {
            "region": config.aws.region,
            "endpoint_url": config.aws.endpoint_url,
            "profile": config.aws.profile,
            "credentials_file": config.aws.credentials_file,
        },
        "network": {
            "cidr": racks.NETWORK,
            "vpc": lab.vpc,
            "zones": {racks.ZONE: racks.CLOUD},
            "subnets": {racks.ZONE: lab.subnets[racks.CLOUD]},
        },
        "site": {
            "controllers": ["ctl"],
            "ssh": lab.ssh(),
            "networks": [racks.RACKS],
            "users": [{"name": "ada", "uid": 2001}],
            "aws": {
                "principal": f"arn:aws:iam::{Clients(config).account}:root",
                "profile": config.aws.profile,
                "credentials_file": "/etc/lab-aws-credentials",
            },
        },
        "slurm": {"version": config.slurm.version, "suspend_time": 15, "resume_timeout": 180},
        "logs": {"enabled": False},
        "pools": {
            "cloud": {
                "count": 2,
                "shape": {"cpus": 2, "memory_gib": 4},
                "offerings": [{"type": "m7i.large", "capacity": "on-demand"}],
            }
        },
        "partitions": {"burst": {"pools": ["cloud"]}},
    }


def test_a_site_is_joined_used_and_left_as_it_was(joined):
    lab = joined.lab
    lab.run(
        "sh",
        "-c",
        'printf %s "$1" > /etc/lab-aws-credentials; chmod 644 /etc/lab-aws-credentials',
        "sh",
        Path(load(joined.path).aws.credentials_file).read_text(),
    )
    before = lab.files_of_slurm()
    rack_job = joined.submit("--partition=main", "--wrap=sleep 3600")
    until("the rack's job runs", lambda: joined.state(rack_job) == "RUNNING")
    started = joined.job(rack_job)["start_time"]
    until("the lab suspends its rack by itself", lambda: f"{racks.DOWN} rack2" in lab.power_calls())

    assert "+Include toolkit-burst.conf" in joined.toolkit("join", "plan", code=2)
    assert lab.files_of_slurm() == before
    assert "adds one line to /etc/slurm/slurm.conf" in joined.toolkit("join", "apply", code=3)
    assert lab.files_of_slurm() == before
    joined.toolkit("join", "apply", "--yes")
    assert "no changes" in joined.toolkit("join", "plan")

    cloud_job = joined.submit("--partition=burst", "--nodes=2", "--wrap=srun hostname; id -u")
    green_job = joined.submit("--partition=green", "--wrap=true")
    until("the lab's own program gets its rack", lambda: f"{racks.UP} rack2" in lab.power_calls())
    lab.switch_on("rack2")
    until("the job on the rack ends", lambda: joined.state(green_job) == "COMPLETED")
    until("the job in the cloud ends", lambda: joined.state(cloud_job) == "COMPLETED")
    assert joined.job(cloud_job)["nodes"] == "cloud-[001-002]"
    handed_on = json.loads(lab.power_calls()[-1])
    assert handed_on["all_nodes_resume"] == "rack2"
    assert [job["nodes_resume"] for job in handed_on["jobs"]] == ["rack2"]

    assert "healthy" in joined.toolkit("status")
    assert "cloud-001" in joined.toolkit("nodes", "--all")
    assert cloud_job in joined.toolkit("why", cloud_job)
    until("the cloud nodes are powered down", lambda: idle(lab) == {"idle~"})

    joined.toolkit("join", "remove", code=3)
    # slurmctld would fail the rack's job, if that named our partition.
    assert "partition-in-use" in joined.toolkit("join", "remove", "--yes", code=1)
    assert joined.state(rack_job) == "RUNNING"
    assert joined.job(rack_job)["start_time"] == started
    lab.run("scancel", rack_job)
    until("the rack's job ends", lambda: joined.state(rack_job) == "CANCELLED")
    joined.toolkit("join", "remove", "--yes")
    assert lab.files_of_slurm() == before
    assert lab.run("cat", "/etc/slurm/slurm.conf") == racks.SLURM_CONF
    left = lab.run("sh", "-c", "ls -d /opt/slurm-toolkit /etc/slurm-toolkit || true")
    assert not left
    assert "ResumeProgram           = " + racks.UP in lab.run("scontrol", "show", "config")


def idle(lab):
    """Return the states of the cloud nodes, in sinfo's short form."""
    return set(lab.run("sinfo", "-h", "-p", "burst", "-o", "%t").split())
