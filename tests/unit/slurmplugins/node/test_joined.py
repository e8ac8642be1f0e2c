"""First boot of a join's cloud node: the site's key, SlurmUser and users."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.config import node
from slurmplugins.errors import BootError, ConfigError
from slurmplugins.model.site_key import SiteKey, parse
from slurmplugins.node.boot import Boot
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.metadata import FakeMetadata
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from pathlib import Path

NODE_JSON: dict[str, Any] = {
    "cluster": "burst",
    "region": "us-east-1",
    "secret_id": "burst/slurm-key",
    "bucket": "burst-1",
    "site": {
        "controllers": [["slurm1", "10.1.0.5", 6820], ["slurm2", "10.1.0.6", 6820]],
        "slurm_user": ["slurm", 981, 982],
        "users": [["ada", os.getuid() or 2001, os.getgid() or 2001]],
    },
}
FACTS = {
    "instance-id": "i-0123456789abcdef0",
    "instance-type": "m7i.large",
    "placement/availability-zone": "us-east-1a",
    "ami-id": "ami-1",
    "local-ipv4": "10.42.1.21",
    "tags/instance/toolkit:node": "cloud-001",
    "tags/instance/toolkit:pool": "cloud",
    "tags/instance/toolkit:price": "0.1",
}
KEY = SiteKey("munge.key", bytes(range(64)))


def settings(tmp_path: Path, **changed: Any) -> node.NodeConfig:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(NODE_JSON | changed))
    return node.load(path)


class Stage:
    """A node of the site with a root of its own."""

    def __init__(self, tmp_path: Path, key: SiteKey) -> None:
        self.root, self.runner = tmp_path / "root", FakeRunner()
        (self.root / "etc").mkdir(parents=True)
        self.runner.answer("/usr/bin/getent", "group", "slurm", stdout="slurm:x:64030:\n")
        self.runner.answer(
            "/usr/bin/getent", "passwd", "slurm", stdout="slurm:x:64030:64030::/:/bin/sh\n"
        )
        clock = FakeClock()
        self.boot = Boot(
            settings=settings(tmp_path),
            metadata=FakeMetadata(FACTS),
            read_secret=lambda _: key.secret(),
            runner=self.runner,
            clock=clock,
            log=Log(lambda _: None, clock),
            root=self.root,
        )


@pytest.fixture(autouse=True)
def _any_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "chown", lambda *_: None)


def test_slurmd_asks_every_controller_of_the_site(tmp_path: Path):
    stage = Stage(tmp_path, KEY)
    stage.boot.run()
    environment = (stage.root / "run/slurm-toolkit/slurmd.env").read_text()
    assert "TOOLKIT_CONF_SERVER=10.1.0.5:6820,10.1.0.6:6820\n" in environment
    hosts = (stage.root / "etc/hosts").read_text()
    assert "10.1.0.6 slurm2" in hosts
    assert "10.42.1.21 cloud-001" in hosts


def test_munges_key_is_written_and_munged_started_before_slurmd(tmp_path: Path):
    stage = Stage(tmp_path, KEY)
    stage.boot.run()
    path = stage.root / "etc/munge/munge.key"
    assert path.read_bytes() == KEY.content
    assert path.stat().st_mode & 0o777 == 0o400
    commands = [" ".join(argv) for argv in stage.runner.commands]
    munged = commands.index("/usr/bin/systemctl restart munge.service")
    assert commands.index("/usr/bin/systemctl unmask munge.service") < munged
    assert munged < commands.index("/usr/bin/systemctl start slurmd.service")
    assert "SLURM_SACK" not in (stage.root / "run/slurm-toolkit/slurmd.env").read_text()


def test_auth_slurms_key_is_named_to_slurmd(tmp_path: Path):
    stage = Stage(tmp_path, SiteKey("slurm.key", b"\0" * 64))
    stage.boot.run()
    assert (stage.root / "etc/slurm/slurm.key").read_bytes() == b"\0" * 64
    environment = (stage.root / "run/slurm-toolkit/slurmd.env").read_text()
    assert "SLURM_SACK_KEY=/etc/slurm/slurm.key" in environment
    assert "JWKS" not in environment


def test_slurm_user_and_users_have_the_sites_ids_and_nothing_is_mounted(tmp_path: Path):
    stage = Stage(tmp_path, KEY)
    stage.boot.run()
    assert ["/usr/sbin/groupmod", "--gid", "982", "slurm"] in stage.runner.commands
    assert ["/usr/sbin/usermod", "--uid", "981", "--gid", "982", "slurm"] in stage.runner.commands
    useradd = next(argv for argv in stage.runner.commands if argv[0] == "/usr/sbin/useradd")
    assert useradd[-1] == "ada"
    assert (stage.root / "home/ada").is_dir()
    assert not any("lustre" in argv for argv in stage.runner.commands)


@pytest.mark.parametrize("secret", ["", "k" * 64, '{"file": "munge.key", "base64": "AA"}', "[]"])
def test_a_secret_that_is_no_site_key_is_not_in_the_message(secret: str):
    with pytest.raises(BootError) as caught:
        parse(secret)
    assert not secret or secret not in caught.value.message


@pytest.mark.parametrize(
    ("name", "content"), [("../x", b"\0" * 64), ("munge.key", b"short"), ("slurm.key", b"short")]
)
def test_a_key_that_slurm_would_not_take_is_refused(name: str, content: bytes):
    with pytest.raises(BootError):
        parse(SiteKey(name, content).secret())


@pytest.mark.parametrize(
    "site",
    [
        {},
        {**NODE_JSON["site"], "controllers": []},
        {**NODE_JSON["site"], "controllers": [["a b", "10.1.0.5", 1]]},
        {**NODE_JSON["site"], "users": [["$(id)", 1, 1]]},
        {**NODE_JSON["site"], "slurm_user": ["slurm"]},
    ],
)
def test_a_site_that_cannot_be_read_is_an_error(tmp_path: Path, site: dict[str, Any]):
    with pytest.raises(ConfigError):
        settings(tmp_path, site=site)
