"""The head's heartbeat: sent while the head works, withheld while its data volume is full."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from slurmplugins import heartbeat
from slurmplugins.config import paths
from slurmplugins.model import data_volume
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.system.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path


class Stage:
    """The head of one heartbeat, with the namespaces that got one."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        self._folder, self._patch = folder, patch
        for name in ("STATE", "LOGS"):
            patch.setattr(paths, name, folder)
        patch.setattr(paths, "DECISIONS", folder / "decisions.jsonl")
        settings = SimpleNamespace(heartbeat_namespace="toolkit/demo")
        patch.setattr(heartbeat.burst, "load", lambda _: settings)
        patch.setattr(heartbeat, "put_heartbeat", lambda name, *_: self.sent.append(name))
        LastPass(SystemClock().now()).save(folder)

    def beat(self, free_blocks: int | None) -> str:
        """Run the program, and return its log.

        Without `free_blocks` the volume can't be read.
        """

        def statvfs(path: str) -> os.statvfs_result:
            assert path == data_volume.PATH
            if free_blocks is None:
                raise OSError(5, "Input/output error", path)
            sizes = (4096, 4096, 100, free_blocks, free_blocks, 100, 90, 90)
            return os.statvfs_result((*sizes, 0, 255))

        self._patch.setattr(os, "statvfs", statvfs)
        with pytest.raises(SystemExit) as ended:
            heartbeat.main()
        assert ended.value.code == 0
        log = self._folder / "heartbeat.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_a_head_with_space_on_its_data_volume_gives_a_heartbeat(stage: Stage):
    assert stage.beat(free_blocks=5) == ""
    assert stage.sent == ["toolkit/demo"]


@pytest.mark.parametrize(
    ("free_blocks", "reason"), [(4, "4.0 % of its space free"), (None, "can't be read")]
)
def test_a_full_data_volume_withholds_it_and_the_log_says_why(
    stage: Stage, free_blocks: int | None, reason: str
):
    log = stage.beat(free_blocks)
    assert stage.sent == []
    assert "heartbeat_withheld" in log
    assert reason in log
