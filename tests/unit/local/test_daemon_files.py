"""The daemon's lock, record and options."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.local.aws.moto_patches import Patches
from toolkit.local.daemon_files import AlreadyRunning, StateFiles
from toolkit.local.options import Options, state_dir


def test_options_are_passed_to_the_daemon_unchanged():
    options = Options(state=Path("/x"), port=1, driver="none", throttle=False, boot_delay=2.5)
    assert Options.from_json(options.to_json()) == options


def test_unknown_options_of_a_newer_toolkit_are_ignored():
    text = '{"state": "/x", "port": 7, "hyperdrive": true}'
    assert Options.from_json(text) == Options(state=Path("/x"), port=7)


def test_the_state_directory_is_the_given_one_or_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TOOLKIT_LOCAL_DIR", "/from/environment")
    assert state_dir(tmp_path) == tmp_path
    assert state_dir() == Path("/from/environment")
    monkeypatch.delenv("TOOLKIT_LOCAL_DIR")
    assert state_dir() == Path("/var/lib/toolkit-local")


def test_a_state_directory_has_one_daemon(tmp_path):
    files, options = StateFiles(tmp_path), Options(state=tmp_path, port=4999)
    assert files.running() is None
    with files.hold(options):
        running = files.running()
        assert running is not None
        assert running.options == options
        with pytest.raises(AlreadyRunning), files.hold(options):
            pass
    assert files.running() is None


def test_a_record_without_a_lock_is_of_a_terminated_daemon(tmp_path):
    files = StateFiles(tmp_path)
    with files.hold(Options(state=tmp_path)):
        record = files.record.read_text()
    files.record.write_text(record)
    assert files.running() is None


def test_patches_are_undone_in_full():
    class Owner:
        def method(self):
            return "original"

        @classmethod
        def class_method(cls) -> str:
            return "original"

    patches = Patches()
    patches.replace(Owner, "method", lambda _self: "first")
    patches.replace(Owner, "method", lambda _self: "second")
    patches.replace(Owner, "class_method", classmethod(lambda _cls: "ours"))
    patches.replace(Owner, "added", 1)
    assert (Owner().method(), Owner.class_method(), Owner.added) == ("second", "ours", 1)
    patches.undo()
    assert (Owner().method(), Owner.class_method()) == ("original", "original")
    assert not hasattr(Owner, "added")
