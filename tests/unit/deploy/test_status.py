"""The verdict on a cluster, computed from facts alone."""

from dataclasses import replace

import pytest

from slurmplugins.head.report import BreakerReport, HeadReport, PassReport
from slurmplugins.model.data_volume import LEAST_FREE, FreeShares
from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.deploy.samples import Report, example
from toolkit.config.model import LoginNodes
from toolkit.config.monitoring import Alarms, Logs
from toolkit.deploy.login_nodes import UP
from toolkit.deploy.slurm_accounts import apply_accounts
from toolkit.deploy.status import (
    Down,
    Status,
    _units,
    engine_problems,
    missing_accounts,
    other_slurm,
)
from toolkit.slurm_nodes import SlurmNodes, parse_node

GOOD = Status(
    cluster="demo",
    stack="CREATE_COMPLETE",
    head_instance="i-1",
    head_state="running",
    setup="ok",
    services={"slurmctld": "active", "slurmdbd": "active"},
    slurmctld_answers=True,
    nodes={"idle+powered_down": 4},
    instances={"head": 1},
)


def test_a_cluster_without_problems_is_healthy():
    """Count powered-down nodes as healthy."""
    assert GOOD.healthy


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stack": ""}, "cluster demo is not deployed"),
        ({"stack": "UPDATE_ROLLBACK_FAILED"}, "stack is UPDATE_ROLLBACK_FAILED"),
        ({"head_instance": ""}, "there is no head node: `toolkit deploy` makes one"),
        ({"head_state": "stopped"}, "head node i-1 is stopped"),
        ({"setup": "running"}, "head node's set-up is running"),
        ({"setup": ""}, "head node's set-up is not reported yet"),
        ({"services": {"slurmdbd": "failed"}}, "slurmdbd is failed"),
        ({"slurmctld_answers": False}, "slurmctld doesn't answer"),
        ({"trouble": ("no agent",)}, "no agent"),
        (
            {"missing_accounts": ("account vision", "user ada to account vision")},
            (
                "slurmdbd lacks account vision, user ada to account vision:"
                " `toolkit accounts apply` adds them"
            ),
        ),
        (
            {"missing_accounts": tuple("abcdefg")},
            "slurmdbd lacks a, b, c, d, e and 2 more: `toolkit accounts apply` adds them",
        ),
        ({"down": (Down("gpu-001", "Not responding"),)}, "node gpu-001 is down: Not responding"),
        (
            {"slurm": "24.11.5", "other_slurm": {"gpu-001": "25.11.8"}},
            (
                "node gpu-001 runs Slurm 25.11.8, later than the head node's 24.11.5:"
                " `toolkit deploy --replace-head` upgrades the head node first"
            ),
        ),
        ({"login_nodes": {"login-1": "is silent for 99 s"}}, "login-1 is silent for 99 s"),
        (
            {"data_volume": FreeShares(space=0.03, inodes=0.9)},
            (
                "/srv/head has 3.0 % of its space free, less than 5 %:"
                " when it is full, slurmctld saves no state, and forgets jobs at its next start."
                " `toolkit run -- du -xhd2 /srv/head` says what fills it;"
                " a larger head.data_gib and `toolkit deploy` grow it"
            ),
        ),
    ],
)
def test_each_problem_is_a_reason(change, reason):
    """Name one problem, and call the cluster unhealthy because of it."""
    status = replace(GOOD, **change)
    assert status.reasons == (reason,)
    assert not status.healthy


def test_the_services_are_those_that_this_cluster_has():
    config = example("aws")
    keyless = tuple(user.model_copy(update={"ssh_keys": ()}) for user in config.users)
    keyed = (keyless[0].model_copy(update={"ssh_keys": ("ssh-ed25519 AAAA",)}), *keyless[1:])
    no_mlflow = config.mlflow.model_copy(update={"enabled": False})
    no_backups = config.backups.model_copy(update={"enabled": False})
    off = {"mlflow": no_mlflow, "backups": no_backups}
    quiet = {"logs": Logs(enabled=False), "alarms": Alarms(enabled=False)}
    bare = config.model_copy(update={"users": keyless, **off, **quiet})
    least = {
        *("slurmctld", "slurmdbd", "mariadb", "slurm-reconcile.timer", "slurm-imds-access"),
        *("slurm-records.timer", "slurm-prices.timer"),
    }
    assert set(_units(bare)) == least
    taken = bare.model_copy(update={"backups": config.backups})
    assert set(_units(taken)) == {*least, "slurm-backup.timer"}
    assert set(_units(bare.model_copy(update={"users": keyed}))) == {*least, "slurm-sshd"}
    login_nodes = LoginNodes(count=1)
    elsewhere = bare.model_copy(update={"users": keyed, "login_nodes": login_nodes})
    assert set(_units(elsewhere)) == least
    with_mlflow = bare.model_copy(update={"mlflow": config.mlflow})
    assert set(_units(with_mlflow)) == {*least, "optuna", "mlflow", "slurm-runs.timer"}
    with_logs = bare.model_copy(update={"logs": Logs()})
    assert set(_units(with_logs)) == {*least, "slurm-log-shipper"}
    with_alarms = bare.model_copy(update={"alarms": Alarms()})
    assert set(_units(with_alarms)) == {*least, "slurm-heartbeat.timer"}


def test_problems_of_the_engine_are_reported():
    """Show reconcile's warnings in `toolkit status`."""
    assert engine_problems(HeadReport(at=100, last_pass=PassReport(90))) == []
    holding_report = HeadReport(
        at=100, last_pass=PassReport(90, "EC2 does not list 4 of 4 live instances: not trusted")
    )
    assert engine_problems(holding_report) == [
        "reconcile is blocked: EC2 does not list 4 of 4 live instances: not trusted"
    ]
    remarking_report = HeadReport(
        at=100, last_pass=PassReport(90, remarks=("i-1 is not terminated: no",))
    )
    assert engine_problems(remarking_report) == ["reconcile warning: i-1 is not terminated: no"]
    report_of_many = HeadReport(at=100, last_pass=PassReport(90, remarks=tuple("abcdefg")))
    assert [line.split(":")[0] for line in engine_problems(report_of_many)] == [
        *["reconcile warning"] * 5, "reconcile has 2 more warnings",
    ]  # fmt: skip
    stale_report = HeadReport(at=1000, last_pass=PassReport(90))
    assert engine_problems(stale_report) == ["reconcile has not run for 910 s"]
    protecting_report = HeadReport(
        at=100, standings=(BreakerReport("gpu", 5, 50), BreakerReport("cpu", 2))
    )
    (line,) = engine_problems(protecting_report)
    assert line.startswith("pool gpu is protected: 5 instances in a row")
    assert engine_problems(HeadReport(at=100, unended="EC2 has ended nothing")) == [
        "EC2 has ended nothing"
    ]


def test_missing_accounts_and_users_are_reported_until_applied():
    """Report missing accounts, because nobody can submit without one.

    Accounts and shares that an admin added are no problem.
    """
    slurm, config = FakeSacctmgr(), example("local")
    names = missing_accounts(config, slurm)
    assert [name.split(" under ")[0] for name in names] == [
        "account language", "account vision",
        "user ada to account vision", "user grace to account language",
    ]  # fmt: skip
    apply_accounts(config, slurm, Report())
    assert missing_accounts(config, slurm) == ()
    slurm.accounts["vision"]["fairshare"] = "7"
    slurm.accounts["own"] = {"parent": "root", "fairshare": "1", "organization": "x"}
    assert missing_accounts(config, slurm) == ()
    del slurm.members["vision", "ada"]
    assert missing_accounts(config, slurm) == ("user ada to account vision",)


def test_a_cluster_without_declared_accounts_does_not_read_slurmdbd():
    config = example("local").model_copy(update={"accounts": (), "users": ()})
    assert missing_accounts(config, None) == ()


def test_nodes_with_an_earlier_slurm_than_the_head_are_healthy():
    """Let running nodes keep their slurmd while the head is upgraded first."""
    assert replace(GOOD, slurm="25.11.8", other_slurm={"gpu-001": "24.11.5"}).healthy
    assert replace(GOOD, slurm="25.11.2", other_slurm={"gpu-001": "25.11.8"}).healthy


def test_running_nodes_with_another_slurm_than_the_head_are_listed():
    """Leave out nodes without an instance, whose version is an old one."""

    def node(name, version, *states):
        return parse_node({"name": name, "version": version, "state": ["IDLE", "CLOUD", *states]})

    nodes = (
        node("gpu-001", "24.11.5"),
        node("gpu-002", "25.11.8"),
        node("gpu-003", "24.11.5", "POWERED_DOWN"),
        node("gpu-004", "24.11.5", "POWERING_UP"),
        node("gpu-005", ""),
    )
    assert other_slurm(SlurmNodes(nodes, "25.11.8")) == {"gpu-001": "24.11.5"}
    assert other_slurm(SlurmNodes(nodes, "")) == {}


def test_a_login_node_that_is_up_is_no_reason():
    assert replace(GOOD, login_nodes={"login-1": UP}).healthy


@pytest.mark.parametrize("free", [None, FreeShares(LEAST_FREE, LEAST_FREE)])
def test_a_data_volume_with_space_or_of_an_older_head_is_no_reason(free):
    assert replace(GOOD, data_volume=free).healthy
