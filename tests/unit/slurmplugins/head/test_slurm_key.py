"""The head takes the keys of the secret, and names the nodes that lack them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, cast

import pytest

from slurmplugins import head_key
from slurmplugins.errors import BadName, BootError
from slurmplugins.head.slurm_key import RECONFIGURE, RESTART, HeadKey
from slurmplugins.model import slurm_keys
from slurmplugins.model.login_node import LoginNodeReport
from slurmplugins.model.node import Node
from slurmplugins.slurm import key_requests, slurmdbd
from tests.fakes.clock import FakeClock
from tests.fakes.late_slurmdbd import LateSlurmdbd

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.slurm.port import Slurm

OLD = slurm_keys.parse("k" * 64)
BOTH = OLD.with_key("key-2", b"n" * 48)


class FourNodes:
    """slurmctld's list: a node that is up, one that boots, one that ends, one without instance."""

    def nodes(self) -> tuple[Node, ...]:
        return (
            Node("gpu-001", frozenset({"IDLE"}), instance_id="i-1"),
            Node("gpu-002", frozenset({"ALLOCATED", "POWERING_UP"}), instance_id="i-2"),
            Node("gpu-003", frozenset({"IDLE", "POWERING_DOWN"}), instance_id="i-3"),
            Node("gpu-004", frozenset({"IDLE", "POWERED_DOWN"})),
        )


SLURM = cast("Slurm", FourNodes())
STEPS = (RESTART, slurmdbd.QUESTION, RECONFIGURE)


class Stage:
    def __init__(self, root: Path) -> None:
        self.secret, self.requests = OLD.text, root / "requests"
        self.clock = FakeClock()
        self.runner = LateSlurmdbd(self.clock)
        self.login_nodes: tuple[LoginNodeReport, ...] = ()
        self.key = HeadKey(
            lambda: self.secret, root, root / "loaded", self.requests, self.runner,
            self.clock, lambda: self.login_nodes,
        )  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(shutil, "chown", lambda *_: None)
    return Stage(tmp_path)


def test_before_a_rotation_no_daemon_is_restarted(stage: Stage):
    assert stage.key.fetch()
    assert not stage.key.fetch()
    taken = stage.key.take(SLURM)
    assert (taken.generation, taken.confirmed) == ("first", "")
    assert stage.runner.commands == []


def test_the_daemons_take_new_keys_once(stage: Stage):
    stage.secret = BOTH.text
    assert stage.key.take(SLURM).generation == BOTH.generation
    assert [tuple(argv) for argv in stage.runner.commands] == list(STEPS)
    stage.key.take(SLURM)
    assert len(stage.runner.commands) == len(STEPS)


def test_nodes_that_run_or_boot_lack_the_keys_until_their_own_instance_reports(stage: Stage):
    stage.secret = BOTH.text
    assert stage.key.take(SLURM).lacking == ("gpu-001", "gpu-002")
    key_requests.write_report(stage.requests, "gpu-001", "i-1", BOTH.generation)
    key_requests.write_report(stage.requests, "gpu-002", "i-of-yesterday", BOTH.generation)
    assert stage.key.take(SLURM).lacking == ("gpu-002",)
    key_requests.write_report(stage.requests, "gpu-002", "i-2", OLD.generation)
    assert stage.key.take(SLURM).lacking == ("gpu-002",)
    key_requests.write_report(stage.requests, "gpu-002", "i-2", BOTH.generation)
    assert stage.key.take(SLURM).confirmed == "", "not before this call"
    assert stage.key.take(SLURM).confirmed == BOTH.generation


def test_slurmctld_starts_itself_anew_only_when_slurmdbd_answers(stage: Stage):
    stage.secret = BOTH.text
    stage.runner.late_seconds = 30
    stage.key.take(SLURM)
    assert stage.runner.asked_at[RECONFIGURE] - stage.runner.asked_at[RESTART] >= 30


@pytest.mark.parametrize("failed", STEPS)
def test_a_daemon_that_fails_is_tried_again_and_no_node_is_asked_meanwhile(
    stage: Stage, failed: tuple[str, ...]
):
    stage.secret = BOTH.text
    stage.runner.answer(*failed, returncode=1, stderr="busy")
    with pytest.raises(BootError, match="busy"):
        stage.key.take(SLURM)
    assert key_requests.read_wanted(stage.requests) == ""
    stage.runner.answer(*failed)
    assert stage.key.take(SLURM).generation == BOTH.generation


@pytest.mark.parametrize("words", [[], ["take"], ["fetch", "a"], ["drop", "a", "b"], ["take"] * 5])
def test_unknown_arguments_are_refused(words):
    with pytest.raises(BadName):
        head_key.parse(words)


def test_the_playbook_gives_an_empty_endpoint_on_aws():
    assert head_key.parse(["fetch", "demo/slurm-key", "us-east-1", ""]).endpoint_url is None


def test_a_login_node_lacks_the_keys_until_it_reports_them(stage: Stage):
    stage.login_nodes = (LoginNodeReport("login-1", "i-9"),)
    assert stage.key.take(SLURM).lacking == ("gpu-001", "gpu-002", "login-1")
    for node, instance in (("gpu-001", "i-1"), ("gpu-002", "i-2")):
        key_requests.write_report(stage.requests, node, instance, OLD.generation)
    assert stage.key.take(SLURM).lacking == ("login-1",)
    key_requests.write_report(stage.requests, "login-1", "i-9", OLD.generation)
    assert stage.key.take(SLURM).lacking == ()
