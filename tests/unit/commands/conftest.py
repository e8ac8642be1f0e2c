"""A head node whose answers a test chooses."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from toolkit.deploy import head as head_module, session as session_module


@pytest.fixture
def as_head(monkeypatch):
    """Put a fake in place of the head node of a command."""

    @contextmanager
    def connected(config):
        yield None

    def replace(fake_head):
        monkeypatch.setattr(session_module, "connected", connected)
        monkeypatch.setattr(head_module, "Head", lambda clients, config: fake_head)
        return fake_head

    return replace
