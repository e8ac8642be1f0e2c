"""A slurmdbd that answers late, after a start of both daemons.

slurmctld up to 24.11.5 ends when slurmdbd first answers after slurmctld's start, where a partition
has DenyQos or AllowQos (SchedMD's ticket 22385). Jobs of the last five seconds were lost by that.
The whole cluster is affected, so this test runs beside no other.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.slurm.training_job import submit
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(1200, func_only=True)]
DAEMONS = ("slurmdbd", "slurmctld")
SECONDS = 8  # longer than slurmctld takes to start
QUICK = ("--partition=batch", "--output=/dev/null", "--wrap=true")


def state(cluster, unit: str) -> str:
    return cluster.run("systemctl", "show", "--property=ActiveState", "--value", unit).strip()


def restarts(cluster, unit: str) -> int:
    """Return how often systemd restarted the daemon by itself."""
    return int(cluster.run("systemctl", "show", "--property=NRestarts", "--value", unit))


@contextlib.contextmanager
def silent_mariadb(cluster):
    """Stop MariaDB's process, so that slurmdbd can't begin to answer."""
    cluster.run("systemctl", "kill", "--signal=STOP", "mariadb")
    try:
        yield
    finally:
        cluster.run("systemctl", "kill", "--signal=CONT", "mariadb")


def test_slurmctld_starts_when_slurmdbd_answers_and_loses_no_job(cluster):
    """Start both while slurmdbd can't answer; submit when it does."""
    assert "DenyQos=" in cluster.run("cat", "/etc/slurm/slurm.conf"), "no Slurm fails without it"
    cluster.run("systemctl", "stop", *reversed(DAEMONS))
    with silent_mariadb(cluster):
        cluster.run("systemctl", "start", "--no-block", *DAEMONS)
        cluster.run("sleep", str(SECONDS))
        assert state(cluster, "slurmctld") != "active"
    for unit in DAEMONS:
        until(f"{unit}'s start", lambda unit=unit: state(cluster, unit) == "active")
    job = submit(cluster, *QUICK)
    assert job.ended() == {"COMPLETED"}
    assert [restarts(cluster, unit) for unit in DAEMONS] == [0, 0]
