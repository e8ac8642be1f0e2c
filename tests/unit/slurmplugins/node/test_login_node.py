"""A login node's boot and agent, with files under a temporary root."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from slurmplugins.config import login_node, paths
from slurmplugins.errors import BootError, ConfigError
from slurmplugins.node import login_agent, login_boot
from slurmplugins.node.key_follower import KeyFollower
from slurmplugins.node.login_boot import LoginBoot
from slurmplugins.node.sessions import Sessions
from slurmplugins.node.user_limits import UserLimits, user_slice
from slurmplugins.node.users import UserListFollower
from slurmplugins.slurm import key_requests, login_reports
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.metadata import FakeMetadata
from tests.fakes.runner import FakeRunner

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHV"
ADA = {"name": "ada", "uid": 2001, "gid": 2001, "home": "/shared/home/ada", "ssh_keys": [KEY]}
GRACE = {"name": "grace", "uid": 2002, "gid": 2002, "home": "/shared/home/grace"}
ROLES = Path(__file__).parents[4] / "ansible/roles"
NODE_JSON: dict[str, Any] = {
    "cluster": "demo",
    "region": "us-east-1",
    "endpoint_url": None,
    "head_address": "10.42.1.10",
    "secret_id": "demo/slurm-key",
    "shared": {"dns": "fs-1.fsx", "mount_name": "shared", "path": "/shared"},
    "bucket": "demo-1",
    "login_node": "login-1",
}


def config(path: Path, **changes: Any) -> login_node.LoginNodeConfig:
    path.write_text(json.dumps(NODE_JSON | changes))
    return login_node.load(path)


class Stage:
    """A login node at its first boot."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.runner, self.clock = FakeRunner(), FakeClock()
        self.runner.answer("/usr/bin/mountpoint", returncode=1)
        self.log = Log(lambda _: None, self.clock)
        self.boot = LoginBoot(
            settings=config(folder / "node.json"),
            metadata=FakeMetadata({"instance-id": "i-1", "local-ipv4": "10.42.1.21"}),
            read_secret=lambda _: "k" * 64,
            runner=self.runner,
            clock=self.clock,
            log=self.log,
            root=self.root,
        )

    def read(self, path: Path) -> str:
        return (self.root / path.relative_to("/")).read_text()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(shutil, "chown", lambda *_: None)
    return Stage(tmp_path)


def test_users_lose_the_metadata_service_before_the_instance_has_a_key(stage: Stage):
    stage.runner.answer("/opt/slurm-toolkit/bin/slurm-imds-access", returncode=1, stderr="no")
    with pytest.raises(BootError, match="slurm-imds-access failed: no"):
        stage.boot.run()
    assert not (stage.root / "etc/slurm").exists()
    assert stage.runner.commands == [["/opt/slurm-toolkit/bin/slurm-imds-access"]]


def test_a_boot_ends_with_sackd_and_the_agent_started(stage: Stage):
    stage.boot.run()
    assert stage.read(paths.SLURM_KEY) == "k" * 64
    assert (stage.root / "etc/slurm/slurm.key").stat().st_mode & 0o777 == 0o600
    assert stage.read(paths.HOSTNAME) == "login-1\n"
    assert "10.42.1.10 head" in stage.read(paths.HOSTS)
    assert "TOOLKIT_CONF_SERVER=10.42.1.10:6817\n" in stage.read(paths.SACKD_ENVIRONMENT)
    assert json.loads(stage.read(paths.INSTANCE)) == {"instance_id": "i-1", "node": "login-1"}
    assert stage.runner.commands[1][1:] == ["mask", "--now", *login_boot.HEAD_UNITS]
    mount, start = stage.runner.commands[5], stage.runner.commands[-1]
    assert mount[-2:] == ["fs-1.fsx@tcp:/shared", "/shared"]
    assert start == ["/usr/bin/systemctl", "start", "--no-block", *login_boot.UNITS]


def test_a_second_boot_keeps_the_key_of_sshd(stage: Stage):
    stage.boot.run()
    path = stage.root / paths.LOGIN_HOST_KEY.relative_to("/")
    path.parent.mkdir(parents=True)
    path.write_text("a key")
    before = len(stage.runner.commands)
    stage.boot.run()
    assert not [argv for argv in stage.runner.commands[before:] if "ssh-keygen" in argv[0]]


def test_an_instance_without_an_address_is_tried_again(stage: Stage):
    stage.boot.metadata.values.clear()  # type: ignore[attr-defined]
    with pytest.raises(BootError, match="no instance-id"):
        stage.boot.run()
    assert len(stage.clock.slept) == 19


@pytest.mark.parametrize(
    ("share", "cpus", "quota", "high", "most"),
    [(0.5, 4, 200, 50, 55), (1, 2, 200, 100, 100), (0.05, 2, 10, 5, 10), (0.98, 1, 98, 98, 100)],
)
def test_one_user_gets_her_share_of_cpus_and_memory(
    share: float, cpus: int, quota: int, high: int, most: int
):
    lines = user_slice(share, cpus).splitlines()
    assert lines[2:] == [f"CPUQuota={quota}%", f"MemoryHigh={high}%", f"MemoryMax={most}%"]


@pytest.mark.parametrize("changes", [{"login_node": ""}, {"login_node": 1}, {"login_node": None}])
def test_a_node_json_that_is_no_login_nodes_is_refused(tmp_path: Path, changes: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        config(tmp_path / "node.json", **changes)


def test_the_units_start_what_the_boot_names():
    assert "slurm-login-agent.service" in login_boot.UNITS
    for name in ("slurm-login-boot", "slurm-login-agent"):
        unit = (ROLES / f"login_node/files/{name}.service").read_text()
        assert f"ExecStart=/opt/slurm-toolkit/bin/{name}\n" in unit
    sshd = (ROLES / "login_node/tasks/install.yml").read_text()
    assert f"users_host_key: {paths.LOGIN_HOST_KEY}\n" in sshd


class Agent:
    """The agent of a login node whose head has written a list of users."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.shared = root, root / "shared"
        self.runner, self.clock = FakeRunner(), FakeClock()
        self.runner.answer("/usr/bin/pkill", returncode=1)
        self.runner.answer("/usr/bin/systemctl", "is-active", stdout="active\n")
        monkeypatch.setattr("slurmplugins.node.root_file.check_owner", lambda *_: None)
        for folder in ("shared/.toolkit", "etc/ssh", "etc/slurm-toolkit"):
            (root / folder).mkdir(parents=True)
        key = root / paths.LOGIN_HOST_KEY.relative_to("/")
        key.with_name(f"{key.name}.pub").write_text(f"{KEY} login-1\n")
        self.requests, self.reports = root / "requests", paths.login_reports(self.shared)
        log = Log(lambda _: None, self.clock)
        admission = login_agent.Admission(Sessions(root, self.runner, self.clock), self.runner)
        self.agent = login_agent.LoginAgent(
            name="login-1",
            instance_id="i-1",
            limits=UserLimits(paths.login_limits(self.shared), root, self.runner, 4),
            user_list=UserListFollower(
                paths.users_file(self.shared), self.runner, admission.admit
            ),
            keys=KeyFollower(
                "login-1", "i-1", self.requests, lambda: "k" * 64, root, root / "loaded",
                self.runner, self.clock, log, login_agent.SACKD,
            ),
            reports=self.reports,
            root=root,
            runner=self.runner,
            clock=self.clock,
            log=log,
        )  # fmt: skip

    def lists(self, *users: dict[str, Any]) -> None:
        paths.users_file(self.shared).write_text(json.dumps(users))

    def keys(self) -> list[str]:
        return sorted(path.name for path in (self.root / "etc/ssh/slurm_toolkit_keys").iterdir())

    def logins(self) -> list[str]:
        return (self.root / "etc/slurm-toolkit/logins").read_text().split()

    def sshd(self) -> list[str]:
        return [argv[1] for argv in self.runner.commands if argv[-1] == login_agent.SSHD]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    return Agent(tmp_path, monkeypatch)


def test_the_users_of_the_list_may_log_in_and_no_others(agent: Agent):
    agent.lists(ADA, GRACE)
    agent.agent.poll()
    assert (agent.keys(), agent.logins(), agent.sshd()) == (["ada"], ["ada", "grace"], ["start"])
    agent.agent.poll()
    assert agent.sshd() == ["start"], "an unchanged list changes nothing"


def test_who_left_loses_keys_login_and_processes(agent: Agent):
    agent.lists(ADA, GRACE)
    agent.agent.poll()
    agent.lists({**ADA, "left": True, "ssh_keys": []}, GRACE)
    agent.agent.poll()
    assert (agent.keys(), agent.logins()) == ([], ["grace"])
    killed = [argv[-1] for argv in agent.runner.commands if argv[0] == "/usr/bin/pkill"]
    assert killed == ["2001"]
    assert agent.sshd() == ["start", "stop"], "without any key there is no sshd"


def test_a_step_that_fails_is_repeated_and_reported(agent: Agent):
    agent.lists(ADA)
    agent.runner.answer("/usr/bin/systemctl", "start", returncode=1, stderr="no sshd")
    agent.agent.poll()
    agent.agent.report()
    (report,) = login_reports.read(agent.reports)
    assert "no sshd" in report.problem
    agent.runner.answer("/usr/bin/systemctl", "start")
    agent.agent.poll()
    agent.agent.report()
    (report,) = login_reports.read(agent.reports)
    assert (report.name, report.instance_id, report.problem) == ("login-1", "i-1", "")
    assert report.host_key == f"{KEY} login-1"
    assert report.at == agent.clock.now()


def test_the_share_of_a_user_is_the_heads_and_changes_with_it(agent: Agent):
    path = paths.login_limits(agent.shared)
    for share, high in ((0.5, "MemoryHigh=50%"), (0.125, "MemoryHigh=12%")):
        path.write_text(json.dumps({"max_user_share": share}))
        agent.agent.poll()
        drop_in = agent.root / paths.USER_SLICE_DROP_IN.relative_to("/")
        assert high in drop_in.read_text()
    agent.agent.poll()
    assert agent.runner.commands.count(["/usr/bin/systemctl", "daemon-reload"]) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"max_user_share": 0}'])
def test_limits_that_can_not_be_read_let_nobody_new_in(agent: Agent, text: str):
    agent.lists(ADA)
    paths.login_limits(agent.shared).write_text(text)
    agent.agent.poll()
    assert "limits of login nodes" in agent.agent.problem()
    assert agent.sshd() == []


def test_a_login_node_whose_sackd_does_not_run_says_so(agent: Agent):
    agent.runner.answer("/usr/bin/systemctl", "is-active", stdout="failed\n", returncode=3)
    assert agent.agent.problem() == "sackd is failed"


def test_the_agent_has_sackd_take_new_keys(agent: Agent, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "chown", lambda *_: None)
    key_requests.write_wanted(agent.requests, "first")
    agent.agent.poll()
    assert ["/usr/bin/systemctl", "reload", "sackd.service"] in agent.runner.commands


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"at": "now"}', '{"at": true}', "\x00"])
def test_a_report_that_can_not_be_read_is_none(tmp_path: Path, text: str):
    (tmp_path / "login-1.json").write_text(text)
    assert login_reports.read(tmp_path) == ()
    assert login_reports.read(tmp_path / "absent") == ()
