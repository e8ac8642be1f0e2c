"""`local down` reports success only if nothing runs any more."""

import os

import pytest

from toolkit.errors import LocalError
from toolkit.local import lifecycle
from toolkit.local.machines.layout import Layout


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """A local cloud without its daemon, seen by another user than root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    layout = Layout(tmp_path / "state")
    layout.make()
    return layout


def test_down_fails_if_only_root_can_stop_the_machines(layout):
    """Fail, because the machines go on running."""
    (layout.instances / "i-0123456789abcdef0").mkdir()
    with pytest.raises(LocalError, match="only root"):
        lifecycle.down(layout.state, lambda *_: None)


def test_down_fails_if_only_root_can_read_the_state(layout, monkeypatch):
    """Fail, because root's local cloud hides its directories from others."""

    def refused(_path):
        raise PermissionError

    monkeypatch.setattr(type(layout.instances), "iterdir", refused)
    with pytest.raises(LocalError, match="only root"):
        lifecycle.down(layout.state, lambda *_: None)


def test_down_needs_no_root_without_machines(layout):
    """Succeed without root if the local cloud has no machines."""
    assert not lifecycle.down(layout.state, lambda *_: None)
