"""A site that the toolkit did not build: plain Debian machines with their own Slurm and munge.

They are instances of the local cloud, because it boots machines and gives them a network. The rest
is a site's own: Debian's packages, a slurm.conf by hand, accounting in MariaDB, a key, and a
power-save script for two racks. Their subnet stands for the racks' network, since the local cloud
has no tunnel.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.slurm import rack_files
from tests.slurm.conftest import TOOLKIT, new_key
from tests.slurm.rack_files import (
    ADDRESSES,
    CLOUD,
    CONTROLLER,
    NETWORK,
    POWER_LOG,
    RACKS,
    SLURM,
    Keys,
)
from tests.slurm.waiting import PATIENCE, until
from toolkit.deploy import images
from toolkit.local.machines import factory
from toolkit.local.machines.layout import Layout

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients

LAB = "lab.json"
ZONE = "us-east-1a"
IMAGE = f"lab-debian-13-slurm-{SLURM}"
OWN_FILES = "find /etc /usr/local /opt -xdev -printf '%p %y %m %U:%G %l\\n' | sort"
OWN_TEXTS = "find /etc /usr/local -xdev -type f -print0 | sort -z | xargs -0 sha256sum"


@dataclass(frozen=True)
class Lab:
    """The site's machines, by name, and how a person reaches them."""

    clients: Clients
    instances: dict[str, str]
    vpc: str
    subnets: dict[str, str]
    group: str
    key: Path

    def run(self, *argv: str, on: str = CONTROLLER, may_fail: bool = False) -> str:
        """Run argv as root on a machine."""
        driver = factory.nspawn_driver(Layout.from_environment())
        done = driver.execute(self.instances[on], argv, timeout=PATIENCE)
        assert may_fail or done.returncode == 0, (argv, done)
        return done.stdout.decode()

    def ssh(self) -> list[str]:
        """Return the argv by which the toolkit reaches the controller's sshd."""
        options = {
            "BatchMode": "yes",
            "IdentityFile": self.key,
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "ControlMaster": "auto",
            "ControlPath": self.key.with_suffix(".control"),
            "ControlPersist": 20,
            "ProxyCommand": f"{TOOLKIT} local connect {self.instances[CONTROLLER]} %p",
        }
        words = (word for key, value in options.items() for word in ("-o", f"{key}={value}"))
        return ["ssh", *words, "root@{host}"]

    def power_calls(self) -> list[str]:
        """Return the calls of the site's own power-save script."""
        lines = self.run("cat", POWER_LOG, may_fail=True).splitlines()
        return [line for line in lines if line]

    def node_states(self, partition: str) -> set[str]:
        """Return the states of a partition's nodes, in sinfo's short form."""
        return set(self.run("sinfo", "-h", "-p", partition, "-o", "%t", may_fail=True).split())

    def files(self) -> list[str]:
        """Return the controller's own files with mode, owner and hash."""
        return self.run("sh", "-c", f"{OWN_FILES}; {OWN_TEXTS}").splitlines()

    def set_aws(self, *, reachable: bool) -> None:
        """Let the controller's packets to AWS pass, or drop them."""
        port = (self.clients.client("ec2").meta.endpoint_url or "").rpartition(":")[2]
        namespace = f"{Layout.from_environment().name}-{self.instances[CONTROLLER]}"
        drop = "table ip away {}; delete table ip away; table ip away { chain output { type filter"
        drop += f" hook output priority 0; tcp dport {port} drop; }}; }}"
        rules = "table ip away {}; delete table ip away" if reachable else drop
        argv = ["nsenter", f"--net=/run/netns/{namespace}", "--", "nft", rules]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)


def rack_image(clients: Clients, config: ClusterConfig, upgrade: str = "") -> str:
    """Return the image of the racks, and build a missing one.

    With `upgrade`, it also holds the packages of that Debian suite, not installed.
    """
    ec2, name = clients.client("ec2"), f"{IMAGE}-{upgrade}" if upgrade else IMAGE
    found = images.find(ec2, [name]).get(name)
    if found is not None and found.state == "available":
        return found.id
    base = images.find_base(ec2, config)
    subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])
    network = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": True,
        "SubnetId": subnets["Subnets"][0]["SubnetId"],
    }
    builder = _launch(
        clients,
        base.id,
        rack_files.install(upgrade),
        NetworkInterfaces=[network],
        InstanceInitiatedShutdownBehavior="stop",
    )
    try:
        wait_for_state(clients, builder, "stopped")
        image = ec2.create_image(InstanceId=builder, Name=name)["ImageId"]
        until("the racks' image", lambda: images.find(ec2, [name])[name].state == "available")
        return image
    finally:
        ec2.terminate_instances(InstanceIds=[builder])


def build(clients: Clients, config: ClusterConfig, folder: Path, upgrade: str = "") -> Lab:
    """Make the site's network and machines, and wait until its Slurm works."""
    ec2, image = clients.client("ec2"), rack_image(clients, config, upgrade)
    credentials = config.aws.credentials_file
    assert credentials is not None
    folder.mkdir(exist_ok=True)
    keys = Keys.new(new_key(folder / "admin"), *_pair(folder / "power"), credentials)
    vpc = ec2.create_vpc(CidrBlock=NETWORK)["Vpc"]["VpcId"]
    subnets = {
        cidr: ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=ZONE)["Subnet"][
            "SubnetId"
        ]
        for cidr in (RACKS, CLOUD)
    }
    group = ec2.create_security_group(VpcId=vpc, GroupName="lab", Description="The lab")["GroupId"]
    ec2.authorize_security_group_ingress(
        GroupId=group, IpPermissions=[{"IpProtocol": "-1", "IpRanges": [{"CidrIp": NETWORK}]}]
    )
    instances: dict[str, str] = {}
    lab = Lab(clients, instances, vpc, subnets, group, folder / "admin")
    try:
        for name, address in ADDRESSES.items():
            instances[name] = _launch(
                clients,
                image,
                rack_files.first_boot(name, keys),
                SubnetId=subnets[RACKS],
                PrivateIpAddress=address,
                SecurityGroupIds=[group],
            )
        _wait_for_slurm(lab)
        _remember(lab, upgrade)
    except BaseException:
        tear_down(lab)
        raise
    return lab


def kept(clients: Clients, folder: Path, upgrade: str = "") -> Lab | None:
    """Return the lab of an earlier session, None without one.

    A lab of other files or packages is removed, and so is one whose Slurm was upgraded.
    """
    path = folder / LAB
    if not path.exists():
        return None
    facts = json.loads(path.read_text())
    is_same = facts.pop("kind") == _kind(upgrade)
    lab = Lab(clients, key=folder / "admin", **facts)
    path.unlink()  # until the lab is known to work
    own = [{"Name": "vpc-id", "Values": [lab.vpc]}]
    if not clients.client("ec2").describe_vpcs(Filters=own)["Vpcs"]:
        return None  # of a cloud that is gone
    try:
        is_same = is_same and f" {SLURM}." in lab.run("scontrol", "--version")
    except AssertionError:
        is_same = False
    if not is_same:
        tear_down(lab)
        return None
    _remember(lab, upgrade)
    return lab


def _remember(lab: Lab, upgrade: str) -> None:
    """Write down the lab for a later session."""
    names = ("instances", "vpc", "subnets", "group")
    facts = {name: getattr(lab, name) for name in names} | {"kind": _kind(upgrade)}
    (lab.key.parent / LAB).write_text(json.dumps(facts))


def _kind(upgrade: str) -> str:
    """Return what differs between labs of other files or packages."""
    files = Path(rack_files.__file__).read_bytes()
    return f"{hashlib.sha256(files).hexdigest()} {upgrade}"


def tear_down(lab: Lab) -> None:
    """End every machine of the network, and remove it. May be repeated."""
    ec2 = lab.clients.client("ec2")
    if lab.instances:
        exit_master = [*lab.ssh()[:-1], "-O", "exit", CONTROLLER]
        subprocess.run(exit_master, capture_output=True, check=False, timeout=PATIENCE)
    own = [{"Name": "vpc-id", "Values": [lab.vpc]}]
    groups = ec2.describe_instances(Filters=own)["Reservations"]
    ids = [item["InstanceId"] for group in groups for item in group["Instances"]]
    if ids:
        ec2.terminate_instances(InstanceIds=ids)
    for instance in ids:
        wait_for_state(lab.clients, instance, "terminated")
    for subnet in lab.subnets.values():
        ec2.delete_subnet(SubnetId=subnet)
    for item in ec2.describe_security_groups(Filters=own)["SecurityGroups"]:
        if item["GroupName"] != "default":
            ec2.delete_security_group(GroupId=item["GroupId"])
    ec2.delete_vpc(VpcId=lab.vpc)


def wait_for_state(clients: Clients, instance: str, state: str) -> None:
    """Wait until EC2 says that of the instance."""
    ec2, deadline = clients.client("ec2"), time.monotonic() + PATIENCE
    while True:
        (group,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        found = group["Instances"][0]["State"]["Name"]
        if found == state:
            return
        console = ec2.get_console_output(InstanceId=instance).get("Output") or ""
        assert time.monotonic() < deadline, f"{instance} is {found}, not {state}\n{console[-2000:]}"
        time.sleep(0.5)


def _pair(path: Path) -> tuple[str, str]:
    public = new_key(path)
    return public, path.read_text()


def _launch(clients: Clients, image: str, script: str, **options: Any) -> str:
    response = clients.client("ec2").run_instances(
        ImageId=image, InstanceType="m7i.large", MinCount=1, MaxCount=1, UserData=script, **options
    )
    return response["Instances"][0]["InstanceId"]


def _wait_for_slurm(lab: Lab) -> None:
    """Wait until slurmctld knows all racks, and accounting the jobs' accounts."""
    for instance in lab.instances.values():
        wait_for_state(lab.clients, instance, "running")
    deadline = time.monotonic() + PATIENCE
    wanted = {f"{name}=idle" for name in ADDRESSES if name != CONTROLLER}
    while True:
        states = lab.run("sinfo", "-hN", "-o", "%N=%T", may_fail=True).split()
        if wanted <= {state.rstrip("*~#%") for state in states}:
            return
        assert time.monotonic() < deadline, f"the lab's Slurm does not work: {states}"
        time.sleep(1)
