"""A backup of a real cluster, restored after its databases and Slurm's state are gone.

The whole cluster is affected, so this test runs beside no other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from slurmplugins.model.backup import JOB_ID_GAP
from tests.slurm.conftest import Cluster, cluster_of, toolkit
from tests.slurm.training_job import TrainingJob, submit
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(1800, func_only=True)]
QUICK = ("--output=/dev/null", "--wrap=true")
DATABASES = ("slurm_acct_db", "mlflow", "optuna")
SERVICES = ("mlflow", "optuna", "slurmctld", "slurmdbd")
STATE = "/srv/head/slurmctld"
RUN = "backed-up"
SHARES = ("sshare", "--noheader", "--parsable2", "--all", "--format=Account,User,RawUsage")
LOG_RUN = (
    "import mlflow; mlflow.set_tracking_uri('http://127.0.0.1:5000');"
    " mlflow.set_experiment('backups'); run = mlflow.start_run(run_name='backed-up');"
    " mlflow.log_metric('loss', 0.5); mlflow.end_run(); print(run.info.run_id)"
)


def backup(cluster: Cluster, command: str, *more: str, may_fail: bool = False):
    return toolkit("backup", command, "--config", str(cluster.config), *more, may_fail=may_fail)


def accounted(cluster: Cluster, job: TrainingJob) -> str:
    argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State,User")
    return cluster.run(*argv, f"--jobs={job.number}").strip()


def found_runs(cluster: Cluster) -> list[str]:
    # MLflow takes a while to answer after its start.
    found = f"/opt/slurm-toolkit/bin/slurm-runs find {RUN} || echo '[]'"
    text = cluster.run("sh", "-c", found)
    return [run["run_id"] for run in json.loads(text)]


@dataclass(frozen=True)
class Restored:
    """The cluster after the restore, and what was true before the loss."""

    cluster: Cluster
    job: TrainingJob
    row: str
    run_id: str
    lost_row: str
    refusal: str
    plan: str


def lose_everything(cluster: Cluster) -> None:
    """Leave the cluster with empty databases, and no state of Slurm."""
    cluster.run("systemctl", "stop", *SERVICES)
    for name in DATABASES:
        cluster.run("mariadb", "--execute", f"DROP DATABASE {name}; CREATE DATABASE {name}")
    keep = ("!", "-name", "toolkit-id")
    cluster.run(
        "find", STATE, "-mindepth", "1", "-maxdepth", "1", *keep, "-exec", "rm", "-r", "{}", "+"
    )
    cluster.run("systemctl", "start", "slurmdbd", "slurmctld")
    ping = ("sh", "-c", "scontrol ping || true")
    until("slurmctld", lambda: "is UP" in cluster.run(*ping))


@pytest.fixture(scope="module")
def restored(cluster) -> Restored:
    """Take a backup, lose what it saves, and restore it."""
    cluster = cluster_of(cluster.config)  # test_lost_head.py replaces it
    job = submit(cluster, *QUICK)
    assert job.ended() == {"COMPLETED"}
    row = until("accounting", lambda: accounted(cluster, job))
    run_id = cluster.as_user("/shared/env/bin/python", "-c", LOG_RUN).split()[-1]
    waiting = submit(cluster, "--hold", *QUICK)
    until("an empty queue but for that job", lambda: only(cluster, waiting.number))
    backup(cluster, "now")
    refused = backup(cluster, "restore", "latest", "--yes", may_fail=True)
    cluster.as_user("scancel", waiting.number)
    until("an empty queue", lambda: only(cluster))

    lose_everything(cluster)
    lost_row = accounted(cluster, job)
    plan = backup(cluster, "restore", "latest", "--dry-run").stdout
    backup(cluster, "restore", "latest", "--yes")
    return Restored(cluster, job, row, run_id, lost_row, refused.stderr, plan)


def status_without_warnings(cluster: Cluster) -> dict[str, Any] | None:
    status = json.loads(cluster.toolkit("status", "--json", may_fail=True).stdout)
    return None if status["warnings"] else status


def only(cluster: Cluster, *numbers: str) -> bool:
    """Return whether the queue has these jobs and no others."""
    return set(cluster.run("squeue", "--noheader", "--format=%A").split()) == set(numbers)


def test_a_job_in_the_queue_refuses_a_restore(restored):
    assert "1 job is in the queue; nothing was changed" in restored.refusal


def test_old_jobs_and_runs_are_there_again(restored):
    assert f"{restored.job.number}|COMPLETED|ada" == restored.row
    assert restored.lost_row == ""
    assert "replaces: 0 jobs" in restored.plan
    assert accounted(restored.cluster, restored.job) == restored.row
    runs = until("MLflow", lambda: found_runs(restored.cluster))
    assert restored.run_id in runs


def test_a_new_job_runs_with_an_id_that_was_never_used(restored):
    """Users and accounts are those of cluster.yaml again."""
    job = submit(restored.cluster, *QUICK)
    assert int(job.number) > int(restored.job.number) + JOB_ID_GAP
    assert job.ended() == {"COMPLETED"}
    expected = f"{job.number}|COMPLETED|ada"
    assert until("accounting", lambda: accounted(restored.cluster, job)) == expected


def test_slurm_conf_is_as_deploy_wrote_it_and_the_cluster_is_healthy(restored):
    assert "FirstJobId" not in restored.cluster.run("cat", "/etc/slurm/slurm.conf")
    until(
        "health",
        lambda: "healthy" in restored.cluster.toolkit("status", may_fail=True).stdout.split("\n"),
    )
    assert "no changes" in restored.cluster.toolkit("apply", "--dry-run").stdout


def test_status_tells_the_age_of_the_last_backup(restored):
    """Wait for the next try of records that failed during the restore."""
    status = until("a status without warnings", lambda: status_without_warnings(restored.cluster))
    assert status["backup"]["id"]
    assert restored.cluster.run("systemctl", "is-active", "slurm-backup.timer").strip() == "active"
