"""A site that the toolkit did not build: plain Debian machines with their own Slurm and munge.

They are instances of the local cloud, because it boots machines and gives them a network. The rest
is a site's own: Debian's packages, a slurm.conf by hand, a key, a power-save script for one rack.
Their subnet stands for the racks' network, since the local cloud has no tunnel.
"""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.slurm.conftest import TOOLKIT
from tests.slurm.waiting import PATIENCE
from toolkit.deploy import images
from toolkit.local.machines import factory
from toolkit.local.machines.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients

ZONE = "us-east-1a"
NETWORK, RACKS, CLOUD = "10.77.0.0/16", "10.77.0.0/24", "10.77.1.0/24"
ADDRESSES = {"ctl": "10.77.0.10", "rack1": "10.77.0.11", "rack2": "10.77.0.12"}
IMAGE = "lab-rack-debian-13"
POWER_LOG = "/var/log/slurm/site-power.log"
UP, DOWN = "/usr/local/sbin/lab-power-up", "/usr/local/sbin/lab-power-down"
PACKAGES = "slurmctld slurmd slurm-client munge openssh-server"
INSTALL = f"""\
#!/bin/bash
set -e
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -qy --no-install-recommends -o Dpkg::Options::=--force-unsafe-io install {PACKAGES}
rm /usr/sbin/policy-rc.d /etc/munge/munge.key
systemctl disable slurmctld slurmd munge ssh
poweroff
"""
SLURM_CONF = f"""\
# The lab's own slurm.conf, by hand.
ClusterName=Lab
SlurmctldHost=ctl({ADDRESSES["ctl"]})
SlurmUser=slurm
AuthType=auth/munge
SlurmctldParameters=enable_configless
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
ReturnToService=2
MailProg=/usr/bin/true

# One rack sleeps when it is idle: its service processor has scripts.
ResumeProgram={UP}
SuspendProgram={DOWN}
SuspendTime=INFINITE
NodeName=DEFAULT CPUs=2 RealMemory=1000 State=UNKNOWN
NodeName=rack1 NodeAddr={ADDRESSES["rack1"]}
NodeName=rack2 NodeAddr={ADDRESSES["rack2"]}
PartitionName=main Nodes=rack1 Default=YES
PartitionName=green Nodes=rack2 SuspendTime=15 SuspendTimeout=5 ResumeTimeout=120"""
"""Its last line has no end, as files by hand sometimes do."""
POWER = f"""\
#!/bin/sh
# The lab's service processors, and a note of each call.
{{
  echo "$0 $*"
  [ -z "$SLURM_RESUME_FILE" ] || {{ cat "$SLURM_RESUME_FILE"; echo; }}
}} >> {POWER_LOG}
"""
SETUP = """\
#!/bin/bash
set -e
hostname {name}
printf '127.0.0.1 localhost\\n{hosts}' > /etc/hosts
useradd --create-home --uid 2001 ada
{files}
chown munge:munge /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
chmod 700 /root/.ssh
chmod 755 {up} {down} 2>/dev/null || true
install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm/slurmctld
systemctl start munge ssh
{start}
"""


@dataclass(frozen=True)
class Lab:
    """The site's machines, by name, and how a person reaches them."""

    clients: Clients
    instances: dict[str, str]
    vpc: str
    subnets: dict[str, str]
    group: str
    key: Path

    def run(self, *argv: str, on: str = "ctl", may_fail: bool = False) -> str:
        """Run argv as root on a machine."""
        driver = factory.nspawn_driver(Layout.from_environment())
        done = driver.execute(self.instances[on], argv, timeout=PATIENCE)
        assert may_fail or done.returncode == 0, (argv, done)
        return done.stdout.decode()

    def ssh(self) -> list[str]:
        """Return the argv by which the toolkit reaches the controller's sshd."""
        control = self.key.with_suffix(".control")
        options = {
            "BatchMode": "yes",
            "IdentityFile": self.key,
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "ControlMaster": "auto",
            "ControlPath": control,
            "ControlPersist": 20,
            "ProxyCommand": f"{TOOLKIT} local connect {self.instances['ctl']} %p",
        }
        words = (word for key, value in options.items() for word in ("-o", f"{key}={value}"))
        return ["ssh", *words, "root@{host}"]

    def power_calls(self) -> list[str]:
        """Return the calls of the site's own power-save script."""
        return self.run("cat", POWER_LOG, may_fail=True).splitlines()

    def switch_on(self, rack: str) -> None:
        """Do what a service processor does: the rack boots, and slurmd starts."""
        self.run("sed", "-i", "s/ -b//; s/$/ -b/", "/etc/default/slurmd", on=rack)
        self.run("systemctl", "restart", "slurmd", on=rack)

    def files_of_slurm(self) -> list[str]:
        """Return each file in /etc/slurm with its mode, owner and hash."""
        text = self.run("sh", "-c", "cd /etc/slurm && stat -c '%n %a %U:%G' * && sha256sum *")
        return text.splitlines()


def rack_image(clients: Clients, config: ClusterConfig) -> str:
    """Return the image of the racks: Debian with Debian's Slurm.

    It is built if it is missing.
    """
    ec2 = clients.client("ec2")
    found = images.find(ec2, [IMAGE]).get(IMAGE)
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
        INSTALL,
        NetworkInterfaces=[network],
        InstanceInitiatedShutdownBehavior="stop",
    )
    try:
        wait_for_state(clients, builder, "stopped", seconds=PATIENCE * 2)
        image = ec2.create_image(InstanceId=builder, Name=IMAGE)["ImageId"]
        deadline = time.monotonic() + PATIENCE
        while images.find(ec2, [IMAGE])[IMAGE].state != "available":
            assert time.monotonic() < deadline, "the rack's image does not become available"
            time.sleep(0.5)
        return image
    finally:
        ec2.terminate_instances(InstanceIds=[builder])


def build(clients: Clients, config: ClusterConfig, key: Path, public_key: str) -> Lab:
    """Make the site's network and machines, and wait until its Slurm works."""
    ec2 = clients.client("ec2")
    image = rack_image(clients, config)
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
    munge_key = os.urandom(128)
    instances = {
        name: _launch(
            clients,
            image,
            _setup(name, munge_key, public_key),
            SubnetId=subnets[RACKS],
            PrivateIpAddress=address,
            SecurityGroupIds=[group],
        )
        for name, address in ADDRESSES.items()
    }
    lab = Lab(clients, instances, vpc, subnets, group, key)
    _wait_for_slurm(lab)
    return lab


def tear_down(lab: Lab) -> None:
    """End every machine of the network, and remove it. May be repeated."""
    ec2 = lab.clients.client("ec2")
    subprocess.run(
        [*lab.ssh()[:-1], "-O", "exit", "ctl"], capture_output=True, check=False, timeout=PATIENCE
    )
    own = [{"Name": "vpc-id", "Values": [lab.vpc]}]
    groups = ec2.describe_instances(Filters=own)["Reservations"]
    ids = [item["InstanceId"] for group in groups for item in group["Instances"]]
    if ids:
        ec2.terminate_instances(InstanceIds=ids)
    for instance in ids:
        wait_for_state(lab.clients, instance, "terminated")
    for subnet in lab.subnets.values():
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_security_group(GroupId=lab.group)
    ec2.delete_vpc(VpcId=lab.vpc)


def wait_for_state(clients: Clients, instance: str, state: str, seconds: float = PATIENCE) -> None:
    """Wait until EC2 says that of the instance."""
    ec2, deadline = clients.client("ec2"), time.monotonic() + seconds
    while True:
        (group,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        found = group["Instances"][0]["State"]["Name"]
        if found == state:
            return
        console = ec2.get_console_output(InstanceId=instance).get("Output") or ""
        assert time.monotonic() < deadline, f"{instance} is {found}, not {state}\n{console[-2000:]}"
        time.sleep(0.5)


def _launch(clients: Clients, image: str, script: str, **options: Any) -> str:
    response = clients.client("ec2").run_instances(
        ImageId=image, InstanceType="m7i.large", MinCount=1, MaxCount=1, UserData=script, **options
    )
    return response["Instances"][0]["InstanceId"]


def _setup(name: str, munge_key: bytes, public_key: str) -> str:
    """Return a machine's first boot, as the lab's admin wrote it."""
    files = {"/etc/munge/munge.key": munge_key, "/root/.ssh/authorized_keys": public_key.encode()}
    server = f"{ADDRESSES['ctl']}:6817"
    if name == "ctl":
        files["/etc/slurm/slurm.conf"] = SLURM_CONF.encode()
        files["/etc/slurm/cgroup.conf"] = b"CgroupPlugin=disabled\n"  # a container has none to give
        files |= {UP: POWER.encode(), DOWN: POWER.encode()}
    else:
        files["/etc/default/slurmd"] = f"SLURMD_OPTIONS=-N {name} --conf-server {server}\n".encode()
    lines = [
        f"mkdir -p {shlex.quote(path.rpartition('/')[0])}"
        f" && echo {base64.b64encode(content).decode()} | base64 -d > {shlex.quote(path)}"
        for path, content in files.items()
    ]
    return SETUP.format(
        name=name,
        hosts="".join(f"{address} {host}\\n" for host, address in ADDRESSES.items()),
        files="\n".join(lines),
        up=UP,
        down=DOWN,
        start=f"systemctl start {'slurmctld' if name == 'ctl' else '--no-block slurmd'}",
    )


def _wait_for_slurm(lab: Lab) -> None:
    deadline = time.monotonic() + PATIENCE
    for instance in lab.instances.values():
        wait_for_state(lab.clients, instance, "running")
    while True:
        states = lab.run("sh", "-c", "sinfo -hN -o '%N=%T' 2>&1 || true", may_fail=True).split()
        if {"rack1=idle", "rack2=idle"} <= {state.rstrip("*~#") for state in states}:
            return
        assert time.monotonic() < deadline, f"the lab's Slurm does not work: {states}"
        time.sleep(1)
