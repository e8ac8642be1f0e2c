"""`local down` says what is down, and doesn't say it of what it can't end."""

import os

import pytest

from toolkit.errors import LocalError
from toolkit.local import lifecycle
from toolkit.local.machines.layout import Layout


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """The state of a local cloud whose daemon was killed, looked at by somebody who isn't root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    layout = Layout(tmp_path / "state")
    layout.make()
    return layout


def test_down_fails_if_only_root_can_stop_the_machines(layout):
    """They run on; a person who read `down` would never look for them."""
    (layout.instances / "i-0123456789abcdef0").mkdir()
    with pytest.raises(LocalError, match="only root"):
        lifecycle.down(layout.state, lambda *_: None)


def test_down_fails_if_only_root_can_read_the_state(layout, monkeypatch):
    """Root's local cloud keeps its directories from others."""

    def refused(_path):
        raise PermissionError

    monkeypatch.setattr(type(layout.instances), "iterdir", refused)
    with pytest.raises(LocalError, match="only root"):
        lifecycle.down(layout.state, lambda *_: None)


def test_down_needs_no_root_without_machines(layout):
    """A local cloud without machines needs no root."""
    assert not lifecycle.down(layout.state, lambda *_: None)
