"""The boot program of the head, as its user data has it, with the head's own credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from slurmplugins.cloud import tags
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.patience import PROGRAM_SECONDS
from toolkit.deploy import names
from toolkit.deploy.bundle import pack
from toolkit.deploy.head import find_head
from toolkit.deploy.storage import Bucket
from toolkit.deploy.user_data import head_script
from toolkit.local.aws.iam.principals import role_of_profile

pytestmark = LEAVES_A_CLOUD
RECORDS = "import pathlib, sys; pathlib.Path('ran').write_text(' '.join(sys.argv[1:]))\n"


def bundle(comment):
    """Return a bundle whose playbook program writes down that it ran."""
    program = f"# {comment}\n{RECORDS}".encode()
    return pack(
        {"slurmplugins/__init__.py": (0o644, b""), "slurmplugins/head_boot.py": (0o644, program)}
    )


class Head:
    """The head instance of a deployed cluster, with its boot program in a folder."""

    def __init__(self, config, folder) -> None:
        self.config, self.home, self.clients = config.config, folder / "home", config.actor.clients
        self.bucket = Bucket(
            self.clients.client("s3"), names.bucket(self.config, self.clients.account)
        )
        self.id = find_head(self.clients, self.config)["InstanceId"]
        source = head_script(self.config, self.bucket.name)
        source = source.split("<<'PYTHON'\n")[1].split("\nPYTHON")[0]
        source = source.replace("/opt/slurm-toolkit", str(self.home))
        self.program = folder / "boot"
        self.program.write_text(source.replace("/usr/bin/python3", sys.executable))
        cloud = config.actor.cloud
        instance = cloud.tables.instances[self.id]
        role = role_of_profile(str(instance.row.iam_instance_profile["Arn"]))
        given = cloud.sessions.of_instance(self.id, instance.region, role, cloud.tables.wall())
        self.environment = {
            "PATH": os.environ["PATH"],
            "AWS_ACCESS_KEY_ID": given.key,
            "AWS_SECRET_ACCESS_KEY": given.secret,
            "AWS_SESSION_TOKEN": given.token,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.config.aws.endpoint_url}/_imds/{self.id}",
        }

    def tag(self, sha):
        pairs = [{"Key": tags.BUNDLE, "Value": sha}]
        self.clients.client("ec2").create_tags(Resources=[self.id], Tags=pairs)

    def boot(self, *arguments):
        return subprocess.run(
            [sys.executable, "-I", str(self.program), *arguments],
            env=self.environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS,
            check=False,
        )  # fmt: skip

    @property
    def ran(self):
        """Return the arguments with which the bundle's program ran, or None."""
        record = self.home / "bundle" / "ran"
        return record.read_text() if record.exists() else None

    def status(self):
        return json.loads(self.bucket.read(names.HEAD_STATUS))


@pytest.fixture
def head(shared_cluster, tmp_path):
    return Head(shared_cluster, tmp_path)


def test_the_head_runs_the_bundle_that_its_tag_names(head):
    wanted = bundle("wanted")
    head.bucket.upload(wanted)
    head.tag(wanted.sha)
    done = head.boot()
    assert done.returncode == 0, done.stderr
    assert head.ran.endswith(f"--bundle {wanted.sha}")


def test_the_argument_of_an_admins_command_wins_over_the_tag(head):
    wanted = bundle("newer")
    head.bucket.upload(wanted)
    assert head.boot(wanted.sha).returncode == 0
    assert head.ran.endswith(f"--bundle {wanted.sha}")


def test_a_bundle_that_was_changed_in_the_bucket_is_refused_and_not_run(head):
    """Write another bundle under the trusted hash, by the bucket alone."""
    wanted, other = bundle("changed"), bundle("other")
    head.bucket.write(names.bundle(wanted.sha), other.data)
    head.tag(wanted.sha)
    for arguments in ((), (wanted.sha,)):
        assert head.boot(*arguments).returncode != 0
        assert head.ran is None
        status = head.status()
        assert status["state"] == "failed"
        assert f"bundle {wanted.sha} is refused, nothing of it was run" in status["error"]
        assert f"has the SHA-256 {other.sha}" in status["error"]


def test_the_bucket_has_no_say_in_which_bundle_is_run(head):
    """Offer another bundle by the bucket alone; the tag's is run."""
    wanted, other = bundle("wanted"), bundle("other")
    head.bucket.upload(wanted)
    head.bucket.upload(other)
    head.bucket.write("bundle/current", other.sha.encode())
    head.tag(wanted.sha)
    assert head.boot().returncode == 0
    assert head.ran.endswith(f"--bundle {wanted.sha}")
