"""The files of the lab's admin: slurm.conf, scripts, and a machine's first boot."""

from __future__ import annotations

import base64
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

SLURM = "24.11"  # Debian 13's
CONTROLLER = "ctl"
NETWORK, RACKS, CLOUD = "10.77.0.0/16", "10.77.0.0/24", "10.77.1.0/24"
ROUTER = "10.77.0.1"
GREEN = ("rack-002", "rack-003")
ADDRESSES = {
    CONTROLLER: "10.77.0.10",
    "rack-001": "10.77.0.11",
    "rack-002": "10.77.0.12",
    "rack-003": "10.77.0.13",
}
SLURMCTLD_LOG = "/var/log/slurm/slurmctld.log"
POWER_LOG = "/var/log/slurm/site-power.log"
UP, DOWN = "/usr/local/sbin/lab-power-up", "/usr/local/sbin/lab-power-down"
CREDENTIALS = "/etc/lab/aws-credentials"
UPGRADE = "/var/lib/lab-upgrade"
USERS = {"ada": 2001, "bob": 2002}
PACKAGES = "slurmctld slurmd slurmdbd slurm-client munge mariadb-server openssh-server"
INSTALL = """\
#!/bin/bash
set -e
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
get() {{ apt-get -qy --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@"; }}
get update
get install {packages}
{download}
rm /usr/sbin/policy-rc.d /etc/munge/munge.key
apt-get clean
systemctl disable slurmctld slurmd slurmdbd munge ssh mariadb
poweroff
"""
DOWNLOAD = """\
sed '/^$/,$d; s/trixie trixie-updates/{suite}/' /etc/apt/sources.list.d/debian.sources \\
  > /etc/apt/sources.list.d/lab.sources
get update
apt-get clean
get -t {suite} --download-only install slurmctld slurmd slurmdbd slurm-client
mkdir {folder}
mv /var/cache/apt/archives/*.deb {folder}
rm /etc/apt/sources.list.d/lab.sources"""
SLURM_CONF = f"""\
# The lab's own slurm.conf, by hand.
ClusterName=Lab
SlurmctldHost={CONTROLLER}({ADDRESSES[CONTROLLER]})
SlurmUser=slurm
AuthType=auth/munge
SlurmctldParameters=enable_configless,idle_on_node_suspend
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile={SLURMCTLD_LOG}
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
ReturnToService=2
MailProg=/usr/bin/true
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={CONTROLLER}
AccountingStorageEnforce=associations

# Two racks sleep when they are idle: their service processors have a script.
ResumeProgram={UP}
SuspendProgram={DOWN}
SuspendTime=INFINITE
Include racks.conf
PartitionName=queue1 Nodes=queue1-dy-compute-[1-2],queue1-st-compute-1
PartitionName=main Nodes=rack-001 Default=YES MaxTime=2:00:00
PartitionName=green Nodes=rack-[002-003] SuspendTime=15 SuspendTimeout=5 ResumeTimeout=120"""
"""Its last line has no end, as files by hand sometimes do."""
RACKS_CONF = "NodeName=DEFAULT CPUs=2 RealMemory=1000 State=UNKNOWN\n" + "".join(
    f"NodeName={name} NodeAddr={address}\n"
    for name, address in ADDRESSES.items()
    if name != CONTROLLER
)
RACKS_CONF += "NodeName=queue1-dy-compute-[1-2],queue1-st-compute-1 State=CLOUD\n"
"""The last nodes have the names that ParallelCluster gives. No job uses them."""
SLURMDBD_CONF = f"""\
AuthType=auth/munge
DbdHost={CONTROLLER}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogFile=/var/log/slurm/slurmdbd.log
"""
MARIADB_CONF = """\
[mariadb]
skip-networking
innodb_buffer_pool_size = 64M
loose-innodb_snapshot_isolation = OFF
"""
POWER = f"""\
#!/bin/sh
# The lab's service processors, and a note of each call.
{{
  echo "$0 $*"
  [ -z "$SLURM_RESUME_FILE" ] || {{ cat "$SLURM_RESUME_FILE"; echo; }}
}} >> {POWER_LOG}
case $0 in *-up) verb=restart ;; *) verb=stop ;; esac
for rack in $(scontrol show hostnames "$1"); do
  ssh -q -i /etc/lab/power-key -o BatchMode=yes -o StrictHostKeyChecking=no \\
    -o UserKnownHostsFile=/dev/null "root@$rack" systemctl $verb slurmd &
done
wait
"""
FIRST_BOOT = """\
#!/bin/bash
set -e
hostname {name}
echo {name} > /etc/hostname
printf '127.0.0.1 localhost\\n{hosts}' > /etc/hosts
# The router knows the way to the cloud.
ip route add {cloud} via {router}
ip route del {network}
{users}
{files}
install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm /var/lib/slurm/slurmctld
systemctl start munge ssh
{start}
"""
START_RACK = f"""\
until (: < /dev/tcp/{ADDRESSES[CONTROLLER]}/6817) 2> /dev/null; do sleep 0.2; done
systemctl start --no-block slurmd"""
START_CONTROLLER = """\
systemctl start mariadb
mariadb <<'SQL'
CREATE DATABASE slurm_acct_db;
CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
SQL
systemctl start slurmdbd
until sacctmgr -n show cluster > /dev/null 2>&1; do sleep 0.2; done
sacctmgr -iQ add cluster lab
sacctmgr -iQ add account physics,biology
sacctmgr -iQ add user ada,bob account=physics,biology defaultaccount=physics
systemctl start slurmctld"""


@dataclass(frozen=True)
class Keys:
    """The site's secrets: munge's key, who may log in, and credentials for AWS."""

    munge: bytes
    admin: str
    power: str
    private_power: str
    credentials: str

    @classmethod
    def new(cls, admin: str, power: str, private_power: str, credentials_file: str) -> Keys:
        """Make munge's key; the public keys and the private one are given."""
        credentials = Path(credentials_file).read_text()
        return cls(os.urandom(128), admin, power, private_power, credentials)


def install(upgrade: str = "") -> str:
    """Return the script that makes the racks' image."""
    download = DOWNLOAD.format(suite=upgrade, folder=UPGRADE) if upgrade else ""
    return INSTALL.format(packages=PACKAGES, download=download)


def first_boot(name: str, keys: Keys) -> str:
    """Return the script of a machine's first boot."""
    is_controller = name == CONTROLLER
    files = _of_controller(keys) if is_controller else _of_rack(name, keys)
    return FIRST_BOOT.format(
        name=name,
        cloud=CLOUD,
        router=ROUTER,
        network=NETWORK,
        hosts="".join(f"{address} {host}\\n" for host, address in ADDRESSES.items()),
        users="\n".join(f"useradd -m -u {uid} {user}" for user, uid in USERS.items()),
        files="\n".join(
            f"echo {base64.b64encode(content).decode()} | base64 -d"
            f" | install -D -o {owner} -g {owner} -m {mode} /dev/stdin {shlex.quote(path)}"
            for path, (content, owner, mode) in files.items()
        ),
        start=START_CONTROLLER if is_controller else START_RACK,
    )


def _of_controller(keys: Keys) -> dict[str, tuple[bytes, str, str]]:
    """Return the controller's files with owner and mode."""
    return {
        "/etc/munge/munge.key": (keys.munge, "munge", "400"),
        "/root/.ssh/authorized_keys": (keys.admin.encode(), "root", "600"),
        "/etc/lab/power-key": (keys.private_power.encode(), "slurm", "600"),
        CREDENTIALS: (keys.credentials.encode(), "slurm", "600"),
        "/etc/slurm/slurm.conf": (SLURM_CONF.encode(), "root", "644"),
        "/etc/slurm/racks.conf": (RACKS_CONF.encode(), "root", "644"),
        # A container has no control groups to give.
        "/etc/slurm/cgroup.conf": (b"CgroupPlugin=disabled\n", "root", "644"),
        "/etc/slurm/slurmdbd.conf": (SLURMDBD_CONF.encode(), "slurm", "600"),
        "/etc/mysql/mariadb.conf.d/90-lab.cnf": (MARIADB_CONF.encode(), "root", "644"),
        UP: (POWER.encode(), "root", "755"),
        DOWN: (POWER.encode(), "root", "755"),
    }


def _of_rack(name: str, keys: Keys) -> dict[str, tuple[bytes, str, str]]:
    """Return a rack's files with owner and mode.

    A rack that sleeps starts slurmd at each boot of its own, so slurmd says that it booted.
    """
    boot = " -b" if name in GREEN else ""
    options = f"SLURMD_OPTIONS='-N {name} --conf-server {ADDRESSES[CONTROLLER]}:6817{boot}'\n"
    return {
        "/etc/munge/munge.key": (keys.munge, "munge", "400"),
        "/root/.ssh/authorized_keys": (keys.power.encode(), "root", "600"),
        "/etc/default/slurmd": (options.encode(), "root", "644"),
    }
