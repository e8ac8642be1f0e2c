"""Fixed paths on the head and on compute nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ETC: Final = Path("/etc/slurm-toolkit")
BURST: Final = ETC / "burst.json"
NODE: Final = ETC / "node.json"
SITE: Final = ETC / "site.json"
"""On a controller that we joined: which nodes are ours, and the site's own programs."""
AWS_CONFIG: Final = ETC / "aws-config"
"""On a controller that we joined: where its credentials for AWS come from."""

STATE: Final = Path("/var/lib/slurm-toolkit")
DECISIONS: Final = STATE / "decisions.jsonl"
RESUME_FILES: Final = STATE / "resume-files"
"""On a controller that we joined: resume files of the site's nodes."""
RESTORE: Final = Path("/srv/head/restore")
"""The note of a restore that is not complete, and a file for each daemon that may not start yet.

It is on the data volume, like what a restore replaces. So it goes along to another instance.
"""
LOGS: Final = Path("/var/log/slurm-toolkit")
SLURM_LOGS: Final = Path("/var/log/slurm")
LOG_POSITIONS: Final = Path("/var/lib/slurm-log-shipper/positions.json")
"""The places up to which the log shipper has sent each log."""

RUN: Final = Path("/run/slurm-toolkit")
INSTANCE: Final = RUN / "instance.json"
JOB_TOKENS: Final = RUN / "jobs"
MLFLOW_CREDENTIALS: Final = RUN / "mlflow/credentials.json"
"""On the head: readable by MLflow's user alone."""
SLURMD_ENVIRONMENT: Final = RUN / "slurmd.env"
SLURMD_DROP_IN: Final = Path("/run/systemd/system/slurmd.service.d/10-toolkit.conf")
SACKD_ENVIRONMENT: Final = RUN / "sackd.env"
SACKD_DROP_IN: Final = Path("/run/systemd/system/sackd.service.d/10-toolkit.conf")
USER_SLICE_DROP_IN: Final = Path("/run/systemd/system/user-.slice.d/50-toolkit.conf")

SLURM_ETC: Final = Path("/etc/slurm")
SLURM_CONF: Final = SLURM_ETC / "slurm.conf"
SLURM_KEY: Final = SLURM_ETC / "slurm.key"
SLURM_JWKS: Final = SLURM_ETC / "slurm.jwks"
"""Takes the place of slurm.key from the first rotation on."""
LOADED_KEYS: Final = RUN / "slurm-keys"
"""On a node: the name of the keys that slurmd has read since the boot."""
LOADED_KEYS_OF_HEAD: Final = STATE / "slurm-keys"
HOSTS: Final = Path("/etc/hosts")
HOSTNAME: Final = Path("/etc/hostname")

SSH_KEYS: Final = Path("/etc/ssh/slurm_toolkit_keys")
"""The users' public keys, a file each. Root's, so that no user adds a key of her own."""
LOGINS: Final = ETC / "logins"
"""The users who may open a session on this instance, one name a line."""
SYSUSERS: Final = ETC / "users.conf"
"""The head's list for systemd-sysusers."""
LOGIN_HOST_KEY: Final = Path("/etc/ssh/slurm_toolkit_host_ed25519_key")
"""The key of a login node's sshd; its public part has the suffix .pub."""

BIN: Final = Path("/opt/slurm-toolkit/bin")
"""The directory of the toolkit's programs."""
SLURM_BIN: Final = "/usr/bin"
"""The directory of Slurm's programs, unless burst.json states another."""
PROC: Final = Path("/proc")
SHARED: Final = Path("/shared")
PRICES_FOR_SUBMIT: Final = SHARED / ".toolkit/quote/prices.json"
"""The prices of the line at submit, where every host with sbatch reads them."""
SCRATCH: Final = Path("/scratch")
"""The node's own disk for jobs. In a job it is the part of the job's user."""
JOB_MOUNTS: Final = STATE / "job-mounts"
"""The files of jobs' own /tmp. Not below a folder that jobs have for themselves."""


def users_file(shared: Path) -> Path:
    """Return the path of the list of users, which root owns.

    Every node creates these users' accounts.
    """
    return shared / ".toolkit" / "users.json"


def key_requests(shared: Path) -> Path:
    """Return the directory by which nodes follow a new Slurm key.

    It holds no key.
    """
    return shared / ".toolkit" / "slurm-key"


def login_limits(shared: Path) -> Path:
    """Return the file with the share of one user on login nodes.

    Root owns it.
    """
    return shared / ".toolkit" / "login.json"


def login_reports(shared: Path) -> Path:
    """Return the directory in which login nodes report their state.

    Root owns it.
    """
    return shared / ".toolkit" / "login-nodes"


def stop_requests(shared: Path) -> Path:
    """Return the directory of requests that tell jobs to stop.

    Node agents write there, and reconcile on the head. No user can.
    """
    return shared / ".toolkit" / "stop"
