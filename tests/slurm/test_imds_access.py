"""Access to the metadata service, and to the instance's role, on real machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.ports import CLOSED, OPEN, connect_argv, head_address
from tests.slurm.training_job import HOME, ON_FARM
from tests.slurm.waiting import until
from toolkit.config import load
from toolkit.deploy.session import Clients
from toolkit.local.machines import factory
from toolkit.local.machines.driver import MachineState
from toolkit.local.machines.errors import NotRunning
from toolkit.local.machines.layout import Layout
from toolkit.render.burst import launch_template

if TYPE_CHECKING:
    from toolkit.local.machines.nspawn_driver import NspawnDriver

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]

# Asks as the AWS SDKs do: for a token, then for the name of the role.
ASK = """
import sys, urllib.error, urllib.request
url = "http://169.254.169.254/latest/"
head = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
request = urllib.request.Request(url + "api/token", method="PUT", headers=head)
try:
    token = urllib.request.urlopen(request, timeout=10).read().decode()
except urllib.error.URLError as error:
    sys.exit(f"refused: {error.reason}")
request = urllib.request.Request(
    url + "meta-data/iam/security-credentials/", headers={"X-aws-ec2-metadata-token": token}
)
try:
    print("given", urllib.request.urlopen(request, timeout=10).read().decode())
except urllib.error.HTTPError:
    print("given a token; there is no role")
"""
REFUSED = "refused: [Errno 13] Permission denied"
ASKING = ("python3", "-c", ASK)
TELLING = ("sh", "-c", '"$@" 2>&1 || true', "sh", *ASKING)
USER = 2001
NODE_JSON = {
    "cluster": "judge", "region": "us-east-1", "head_address": "10.42.1.10", "secret_id": "none",
    "shared": {"dns": "none", "mount_name": "none", "path": "/shared"}, "bucket": "none",
}  # fmt: skip
PROBE_NETWORK = "[Match]\nName=probe0\n[Network]\nAddress=192.0.2.1/24\n"
KEEP_ARTIFACT = """
import json, urllib.request
api = "http://127.0.0.1:5000/api/2.0/"
def call(method, path, body=None):
    json_type = {"Content-Type": "application/json"}
    request = urllib.request.Request(api + path, body, json_type, method=method)
    return urllib.request.urlopen(request, timeout=60).read().decode()
run = json.loads(call("POST", "mlflow/runs/create", b'{"experiment_id": "0"}'))["run"]["info"]
folder = run["artifact_uri"].removeprefix("mlflow-artifacts:/")
place = "mlflow-artifacts/artifacts"
call("PUT", f"{place}/{folder}/note.txt", b"kept")
print("read", call("GET", f"{place}/{folder}/note.txt"))
print("listed", call("GET", f"{place}?path={folder}"))
call("DELETE", f"{place}/{folder}/note.txt")
"""


def test_a_user_on_the_head_is_refused_the_role_of_the_head(cluster):
    assert cluster.as_user(*TELLING).strip() == REFUSED


def test_root_of_a_users_own_namespace_is_that_user(cluster):
    assert cluster.as_user("unshare", "-Ur", *TELLING).strip() == REFUSED


@pytest.mark.parametrize("user", ["mlflow", "optuna", "mysql", "nobody"])
def test_services_of_the_head_that_need_no_role_are_refused(cluster, user):
    assert cluster.run("runuser", "-u", user, "--", *TELLING).strip() == REFUSED


@pytest.mark.parametrize("user", ["root", "slurm"])
def test_root_and_slurm_have_the_role_of_the_head(cluster, user):
    said = cluster.run("runuser", "-u", user, "--", *ASKING)
    assert said.startswith("given ")
    assert "HeadRole" in said


def test_a_job_is_refused_the_role_of_its_node_and_root_there_has_it(cluster):
    said = cluster.as_user(
        "srun", *ON_FARM, "--nodes=1", "--time=20", f"--chdir={HOME}",
        "sh", "-c", 'echo $SLURMD_NODENAME; "$@" 2>&1 || true', "sh", *ASKING,
    )  # fmt: skip
    node, answer = said.strip().split("\n")
    assert answer == REFUSED
    assert "ComputeRole" in toolkit("local", "console", node, *ASKING).stdout
    for user in ("slurm", "nobody"):
        words = ("runuser", "-u", user, "--", *TELLING)
        assert toolkit("local", "console", node, *words).stdout.strip() == REFUSED


def test_mlflow_keeps_artifacts_with_a_role_of_its_own(cluster):
    output = cluster.as_user("python3", "-c", KEEP_ARTIFACT)
    assert "read kept" in output
    assert "note.txt" in output.partition("listed")[2]
    calls = json.loads(toolkit("local", "rights", "--json").stdout)["calls"]
    own = [call for call in calls if "MlflowRole" in call["role"]]
    assert all(call["allowed"] for call in own)
    assert {call["action"] for call in own} == {
        "s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject",
    }  # fmt: skip


def test_mlflows_credentials_are_readable_by_mlflow_alone(cluster):
    path = "/run/slurm-toolkit/mlflow/credentials.json"
    read = ("sh", "-c", 'cat "$1" 2>&1 || true', "sh", path)
    assert "Permission denied" in cluster.as_user(*read)
    document = json.loads(cluster.run("runuser", "-u", "mlflow", "--", "cat", path))
    assert document["Version"] == 1


@dataclass(frozen=True)
class Instance:
    """An instance of the compute image that is no node of the cluster."""

    driver: NspawnDriver
    id: str

    def run(self, *argv: str, stdin: str = "") -> str:
        """Run argv as root, and return both outputs."""
        done = self.driver.execute(self.id, argv, timeout=60, stdin=stdin.encode())
        return (done.stdout + done.stderr).decode().strip()

    def ask(self) -> str:
        """Ask for the role as a user."""
        return self.run("setpriv", f"--reuid={USER}", "--clear-groups", *ASKING)

    def is_booted(self) -> bool:
        try:
            state = self.run("systemctl", "is-system-running")
        except NotRunning:  # between two boots
            return False
        return state in {"running", "degraded"}


@pytest.fixture(scope="module")
def instance(cluster):
    """An instance without node.json, so that slurm-node-boot leaves it alone."""
    config = load(cluster.config)
    ec2 = Clients(config).client("ec2")
    (version,) = ec2.describe_launch_template_versions(
        LaunchTemplateName=launch_template(config.cluster, "farm"), Versions=["$Latest"]
    )["LaunchTemplateVersions"]
    # One without public addresses: a machine that has one shares the host's network.
    own = {"Name": "tag:toolkit:cluster", "Values": [config.cluster]}
    subnet = ec2.describe_subnets(Filters=[own])["Subnets"][0]["SubnetId"]
    (started,) = ec2.run_instances(
        ImageId=version["LaunchTemplateData"]["ImageId"], InstanceType="m7i.large",
        MinCount=1, MaxCount=1, SubnetId=subnet,
        MetadataOptions={"HttpTokens": "required", "HttpEndpoint": "enabled"},
    )["Instances"]  # fmt: skip
    driver = factory.nspawn_driver(Layout.from_environment())
    machine = Instance(driver, started["InstanceId"])
    until("the machine", lambda: driver.state(machine.id) is MachineState.RUNNING)
    until("its boot", machine.is_booted)
    network = machine.run("readlink", "/proc/1/ns/net")
    assert network != str(Path("/proc/self/ns/net").readlink()), (
        "these tests change rules and links"
    )
    yield machine
    ec2.terminate_instances(InstanceIds=[machine.id])


def test_users_are_refused_from_the_first_boot_on(instance):
    assert instance.ask() == REFUSED
    assert instance.run(*ASKING) == "given a token; there is no role"


def test_an_instance_without_the_clusters_groups_reaches_no_port_of_the_head(cluster, instance):
    head = head_address(cluster)
    assert cluster.run(*connect_argv(head, 6817)).strip() == OPEN
    ports = {port: instance.run(*connect_argv(head, port)) for port in (6817, 6819, 5000)}
    assert ports == dict.fromkeys(ports, CLOSED)


def test_the_rules_stay_when_systemd_networkd_starts_and_restarts(instance):
    instance.run("ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1")
    instance.run("ip", "link", "set", "probe1", "up")
    # The local tree masks what a container does not need.
    instance.run("systemctl", "unmask", "systemd-networkd.service", "systemd-networkd.socket")
    instance.run("mkdir", "-p", "/run/systemd/network")
    instance.run("tee", "/run/systemd/network/50-probe.network", stdin=PROBE_NETWORK)
    for verb in ("start", "restart"):
        instance.run("ip", "addr", "flush", "dev", "probe0")
        instance.run("systemctl", verb, "systemd-networkd.service")
        until(
            "networkd's work", lambda: "192.0.2.1" in instance.run("ip", "addr", "show", "probe0")
        )
        assert instance.ask() == REFUSED
    instance.run("systemctl", "stop", "systemd-networkd.service", "systemd-networkd.socket")
    instance.run("ip", "link", "del", "probe0")


def test_the_rules_are_made_again_at_a_reboot(instance):
    instance.run("ip", "rule", "del", "preference", "0", "prohibit")
    assert instance.ask().startswith("given"), "without the rule nothing refuses"
    started = ("stat", "-c", "%Y", "/proc/1")
    before = instance.run(*started)
    instance.run("systemctl", "reboot")
    until("the reboot", lambda: instance.is_booted() and instance.run(*started) != before)
    assert instance.ask() == REFUSED


def test_an_instance_that_can_not_make_the_rules_becomes_no_node(instance):
    instance.run("tee", "/etc/slurm-toolkit/node.json", stdin=json.dumps(NODE_JSON))
    instance.run("ip", "rule", "del", "preference", "0", "prohibit")
    instance.run("mv", "/usr/sbin/ip", "/usr/sbin/ip.away")
    said = instance.run("/opt/slurm-toolkit/bin/slurm-node-boot", "--stay")
    instance.run("mv", "/usr/sbin/ip.away", "/usr/sbin/ip")
    assert "BootError" in said
    assert "no rule for 169.254.169.254" in said
    assert instance.run("systemctl", "is-active", "slurmd.service") == "inactive"
    assert "No such file" in instance.run("ls", "/etc/slurm/slurm.key")
