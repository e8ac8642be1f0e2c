"""A node's slurmd follows the head's wish for keys, and reports what it has read."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from slurmplugins.errors import BootError
from slurmplugins.model import slurm_keys
from slurmplugins.node import key_files
from slurmplugins.node.key_follower import RELOAD_SECONDS, KeyFollower, write_loaded
from slurmplugins.slurm import key_requests
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from pathlib import Path

OLD = slurm_keys.parse("k" * 64)
BOTH = OLD.with_key("key-2", b"n" * 48)
SHOW = ("/usr/bin/systemctl", "show")
RELOAD = ["/usr/bin/systemctl", "reload", "slurmd.service"]


class Stage:
    """A node that booted with the old key."""

    def __init__(self, root: Path) -> None:
        self.root, self.requests, self.loaded = root, root / "requests", root / "loaded"
        self.runner, self.clock, self.secret = FakeRunner(), FakeClock(), OLD.text
        key_files.write(root, OLD)
        write_loaded(self.loaded, OLD.generation)
        self.runner.answer(*SHOW, stdout="100\n")
        self.follower = self.new_agent()

    def new_agent(self) -> KeyFollower:
        return KeyFollower(
            "gpu-001", "i-1", self.requests, lambda: self.secret, self.root, self.loaded,
            self.runner, self.clock, Log(lambda _: None, self.clock),
        )  # fmt: skip

    def want(self, keys: slurm_keys.KeySet) -> None:
        self.secret = keys.text
        key_requests.write_wanted(self.requests, keys.generation)

    def report(self) -> tuple[str, str]:
        return key_requests.read_report(self.requests, "gpu-001")

    def reloads(self) -> int:
        return self.runner.commands.count(RELOAD)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(shutil, "chown", lambda *_: None)
    return Stage(tmp_path)


def test_before_any_rotation_nothing_is_read_or_reloaded(stage: Stage):
    stage.secret = "no key"
    stage.follower.follow()
    assert stage.runner.commands == []


def test_a_node_that_booted_with_the_wanted_keys_reports_them_at_once(stage: Stage):
    stage.want(OLD)
    stage.follower.follow()
    assert stage.report() == (OLD.generation, "i-1")
    assert stage.reloads() == 0


def test_new_keys_are_reported_when_slurmd_has_started_itself_anew(stage: Stage):
    stage.want(BOTH)
    stage.follower.follow()
    assert (stage.root / "etc/slurm/slurm.jwks").read_text() == BOTH.text
    assert not (stage.root / "etc/slurm/slurm.key").exists()
    assert stage.report() == ("", ""), "slurmd still has the old key"
    stage.follower.follow()
    assert stage.report() == ("", "")
    stage.runner.answer(*SHOW, stdout="200\n")
    stage.follower.follow()
    assert stage.report() == (BOTH.generation, "i-1")
    assert stage.reloads() == 1


def test_an_agent_that_died_after_it_wrote_the_keys_reloads_slurmd_again(stage: Stage):
    stage.want(BOTH)
    stage.follower.follow()
    stage.follower = stage.new_agent()
    stage.follower.follow()
    assert stage.reloads() == 2
    assert stage.report() == ("", "")


def test_a_slurmd_that_does_not_start_anew_is_asked_again(stage: Stage):
    stage.want(BOTH)
    stage.follower.follow()
    stage.clock.advance(RELOAD_SECONDS + 1)
    stage.follower.follow()
    assert stage.reloads() == 2


def test_a_secret_that_is_not_the_wanted_one_changes_nothing(stage: Stage):
    stage.want(BOTH)
    stage.secret = OLD.text
    with pytest.raises(BootError, match="not the keys"):
        stage.follower.follow()
    assert stage.reloads() == 0
    assert stage.report() == ("", "")


@pytest.mark.parametrize("keys", [OLD, BOTH])
def test_key_files_are_slurms_alone_and_only_one_is_there(tmp_path: Path, monkeypatch, keys):
    monkeypatch.setattr(shutil, "chown", lambda *_: None)
    other = OLD if keys is BOTH else BOTH
    key_files.write(tmp_path, other)
    assert key_files.write(tmp_path, keys)
    assert not key_files.write(tmp_path, keys)
    (path,) = (tmp_path / "etc/slurm").iterdir()
    assert path.read_text() == keys.text
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert key_files.write(tmp_path, keys)
