"""First boot of a compute node, with files under a temporary root."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmplugins.config import node
from slurmplugins.errors import BootError, ConfigError
from slurmplugins.node import instance_store, slurmd_setup, users
from slurmplugins.node.boot import Boot
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.metadata import FakeMetadata
from tests.fakes.runner import FakeRunner

ROLE = Path(__file__).parents[4] / "ansible/roles/burst"
KEY = "k" * 64
NODE_JSON: dict[str, Any] = {
    "cluster": "demo",
    "region": "us-east-1",
    "endpoint_url": None,
    "head_address": "10.42.1.10",
    "secret_id": "demo/slurm-key",
    "shared": {"dns": "fs-1.fsx", "mount_name": "shared", "path": "/shared"},
    "bucket": "demo-1",
}
FACTS = {
    "instance-id": "i-0123456789abcdef0",
    "instance-type": "g5.xlarge",
    "placement/availability-zone": "us-east-1a",
    "instance-life-cycle": "spot",
    "ami-id": "ami-1",
    "ami-launch-index": "1",
    "local-ipv4": "10.42.1.21",
    "tags/instance/toolkit:nodes": "gpu-[001-003]",
    "tags/instance/toolkit:pool": "gpu",
    "tags/instance/toolkit:price": "0.4024",
}


@pytest.fixture
def settings(tmp_path: Path) -> node.NodeConfig:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(NODE_JSON))
    return node.load(path)


class Stage:
    def __init__(self, root: Path, settings: node.NodeConfig) -> None:
        self.root = root
        self.metadata = FakeMetadata(FACTS)
        self.runner = FakeRunner()
        self.runner.answer("/usr/bin/mountpoint", returncode=1)
        self.clock = FakeClock()
        self.asked: list[str] = []
        self.boot = Boot(
            settings=settings,
            metadata=self.metadata,
            read_secret=lambda name: self.asked.append(name) or KEY,  # type: ignore[func-returns-value]
            runner=self.runner,
            clock=self.clock,
            log=Log(lambda _: None, self.clock),
            root=root,
        )

    def read(self, path: str) -> str:
        return (self.root / path).read_text()


@pytest.fixture
def stage(tmp_path: Path, settings: node.NodeConfig, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(shutil, "chown", lambda *_: None)
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    return Stage(root, settings)


def test_an_instance_becomes_the_node_its_place_in_the_launch_says(stage: Stage):
    stage.boot.run()
    assert stage.read("etc/hostname") == "gpu-002\n"
    facts = json.loads(stage.read("run/slurm-toolkit/instance.json"))
    assert facts["node"] == "gpu-002"
    assert (facts["lifecycle"], facts["zone"], facts["price"]) == ("spot", "us-east-1a", "0.4024")


def test_a_node_tag_overrides_the_place_in_the_launch(stage: Stage):
    stage.metadata.values["tags/instance/toolkit:node"] = "gpu-007"
    stage.boot.run()
    assert stage.read("etc/hostname") == "gpu-007\n"


def test_an_instance_that_is_renamed_while_it_boots_registers_by_its_new_name(stage: Stage):
    def renamed(_: str) -> str:
        stage.metadata.values["tags/instance/toolkit:node"] = "gpu-007"
        return KEY

    replace(stage.boot, read_secret=renamed).run()
    assert stage.read("etc/hostname") == "gpu-007\n"
    assert ["/usr/bin/hostname", "gpu-007"] in stage.runner.commands
    assert json.loads(stage.read("run/slurm-toolkit/instance.json"))["node"] == "gpu-007"
    assert "10.42.1.21 gpu-007" in stage.read("etc/hosts")
    assert "gpu-002" not in stage.read("etc/hosts")


def test_the_node_and_the_head_are_found_without_dns_and_booting_twice_adds_nothing(stage: Stage):
    stage.boot.run()
    stage.boot.run()
    lines = stage.read("etc/hosts").splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["127.0.0.1", "localhost"],
        ["10.42.1.21", "gpu-002"],
        ["10.42.1.10", "head"],
    ]


def test_the_key_is_for_slurm_alone_and_on_no_command_line(stage: Stage):
    stage.boot.run()
    assert stage.asked == ["demo/slurm-key"]
    path = stage.root / "etc/slurm/slurm.key"
    assert path.read_text() == KEY
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(KEY not in word for argv in stage.runner.commands for word in argv)


def test_users_are_kept_from_the_instances_role_before_the_key_is_read(stage: Stage):
    stage.boot.run()
    assert stage.runner.commands[0] == ["/opt/slurm-toolkit/bin/slurm-imds-access"]


def test_an_instance_that_can_not_keep_users_from_its_role_becomes_no_node(stage: Stage):
    stage.runner.answer(
        "/opt/slurm-toolkit/bin/slurm-imds-access",
        stderr="MetadataOpen: uid 1 is not refused",
        returncode=1,
    )
    with pytest.raises(BootError, match="uid 1 is not refused"):
        stage.boot.run()
    assert stage.asked == []
    assert not (stage.root / "etc/slurm/slurm.key").exists()
    assert not any("slurmd.service" in argv for argv in stage.runner.commands)


def test_slurmd_is_told_who_and_where_it_is(stage: Stage):
    stage.boot.run()
    text = stage.read("run/slurm-toolkit/slurmd.env")
    assert "TOOLKIT_NODE=gpu-002\n" in text
    assert "TOOLKIT_CONF_SERVER=10.42.1.10:6817\n" in text
    assert "TOOLKIT_INSTANCE_ID=i-0123456789abcdef0\n" in text
    extra = text.split("TOOLKIT_EXTRA='")[1].split("'")[0]
    assert json.loads(extra) == {"lifecycle": "spot", "az": "us-east-1a", "price": "0.4024"}
    assert "ExecStart=/usr/sbin/slurmd --systemd" in stage.read(
        "run/systemd/system/slurmd.service.d/10-toolkit.conf"
    )


def test_only_the_first_start_of_slurmd_counts_as_a_boot(stage: Stage):
    seen: list[str] = []
    run = stage.runner.run

    def spy(argv: list[str], **more: Any) -> Any:
        if argv[1:] == ["start", "slurmd.service"]:
            seen.append(stage.read("run/slurm-toolkit/slurmd.env").splitlines()[0])
        return run(argv, **more)

    stage.runner.run = spy  # type: ignore[method-assign, assignment]
    stage.boot.run()
    assert seen == ["TOOLKIT_BOOT=-b"]
    assert stage.read("run/slurm-toolkit/slurmd.env").startswith("TOOLKIT_BOOT=\n")


def test_the_shared_filesystem_is_mounted_before_slurmd_starts(stage: Stage):
    stage.boot.run()
    words = [" ".join(argv) for argv in stage.runner.commands]
    mount = "/usr/bin/mount -t lustre -o relatime,flock fs-1.fsx@tcp:/shared /shared"
    assert words.index(mount) < words.index("/usr/bin/systemctl start slurmd.service")


def command_lines(stage: Stage) -> list[str]:
    return [" ".join(argv) for argv in stage.runner.commands]


BROKER = "/usr/bin/systemctl start slurm-node-credentials.service"


def with_job_role(stage: Stage) -> Boot:
    settings = replace(stage.boot.settings, job_role="arn:aws:iam::1:role/jobs")
    return replace(stage.boot, settings=settings)


def test_the_credential_broker_listens_before_slurmd_starts_the_first_job(stage: Stage):
    """Systemd's start of it ends when it is ready."""
    with_job_role(stage).run()
    commands = command_lines(stage)
    assert commands.index(BROKER) < commands.index("/usr/bin/systemctl start slurmd.service")


def test_a_node_without_a_broker_runs_the_jobs_that_need_none(stage: Stage):
    stage.runner.answer(*BROKER.split(), returncode=1, stderr="failed")
    with_job_role(stage).run()
    assert "/usr/bin/systemctl start slurmd.service" in command_lines(stage)


def test_a_cluster_that_keeps_nothing_of_its_jobs_in_s3_starts_no_broker(stage: Stage):
    stage.boot.run()
    assert not any("credentials" in command for command in command_lines(stage))


def test_systemd_can_tell_when_the_broker_is_ready_and_orders_it_after_nothing_that_waits_for_it():
    unit = (ROLE / "files/compute/slurm-node-credentials.service").read_text()
    assert "Type=notify" in unit
    assert "After=" not in unit


def test_a_disk_that_can_not_be_used_costs_no_node(stage: Stage):
    block = stage.root / "sys/block/nvme1n1/device"
    block.mkdir(parents=True)
    (block / "model").write_text(instance_store.MODEL)
    (stage.root / "dev").mkdir()
    (stage.root / "dev/nvme1n1").touch()
    stage.runner.answer("/usr/sbin/blkid", returncode=instance_store.UNKNOWN_CONTENT)
    stage.runner.answer("/usr/sbin/mkfs.ext4", returncode=1, stderr="no such device")
    stage.boot.run()
    assert any("slurmd.service" in argv for argv in stage.runner.commands)


def test_tags_that_arrive_late_are_waited_for(stage: Stage):
    tag = stage.metadata.values.pop("tags/instance/toolkit:nodes")
    sleep = stage.clock.sleep

    def late(seconds: float) -> None:
        sleep(seconds)
        stage.metadata.values["tags/instance/toolkit:nodes"] = tag

    stage.clock.sleep = late  # type: ignore[method-assign]
    stage.boot.run()
    assert stage.read("etc/hostname") == "gpu-002\n"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tags/instance/toolkit:nodes", "gpu-[001-"),
        ("tags/instance/toolkit:nodes", "../../etc-1"),
        ("ami-launch-index", "7"),
        ("instance-type", "g5'; reboot '"),
        ("tags/instance/toolkit:price", "1\nX=2"),
    ],
)
def test_invalid_metadata_stops_the_boot_before_slurmd(stage: Stage, path: str, value: str):
    stage.metadata.values[path] = value
    with pytest.raises(BootError):
        stage.boot.run()
    assert not any("slurmd.service" in argv for argv in stage.runner.commands)


def test_a_short_key_is_refused(stage: Stage):
    with pytest.raises(BootError, match="shorter"):
        slurmd_setup.NodeFiles(stage.root).write_slurm_key("short")


def test_everything_missing_from_node_json_is_named_at_once(tmp_path: Path):
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"cluster": "demo", "shared": {"dns": "x"}}))
    with pytest.raises(ConfigError) as caught:
        node.load(path)
    assert len(caught.value.problems) == 6


ADA = {"name": "ada", "uid": 2001, "gid": 2001, "home": "/shared/home/ada", "shell": "/bin/bash"}


def test_people_get_their_accounts_and_groups(tmp_path: Path):
    path, runner = tmp_path / "users.json", FakeRunner()
    path.write_text(json.dumps([{**ADA, "groups": ["vision"]}]))
    if os.getuid() != 0:
        pytest.skip("the list must be root's")
    follower = users.UserListFollower(path, runner)
    follower.follow()
    follower.follow()
    look = ["/usr/bin/getent", "/usr/bin/getent"]
    assert [argv[0] for argv in runner.commands] == [
        *look,  # before anything is changed
        "/usr/sbin/groupadd",
        "/usr/sbin/useradd",
        "/usr/sbin/groupadd",
        "/usr/sbin/usermod",
        *look,
    ]


def test_a_list_that_others_may_write_is_not_believed(tmp_path: Path):
    path = tmp_path / "users.json"
    path.write_text(json.dumps([ADA]))
    path.chmod(0o666)
    with pytest.raises(BootError, match="writable by root alone"):
        users.UserListFollower(path, FakeRunner()).follow()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "-o"},
        {"name": "a b"},
        {"uid": 0},
        {"uid": "2001"},
        {"gid": 27},
        {"home": "/shared/../etc"},
        {"home": "relative"},
        {"shell": "/bin/sh;id"},
        {"groups": ["x;y"]},
    ],
)
def test_hostile_entries_are_refused(change: dict[str, Any]):
    with pytest.raises(BootError):
        users.parse(json.dumps([{**ADA, **change}]))
