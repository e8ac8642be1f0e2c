"""The name of an instance's own stream, before and after its first boot."""

from __future__ import annotations

import pytest

from slurmplugins.errors import MetadataError
from slurmplugins.logs.stream_name import OwnStream
from tests.fakes.clock import FakeClock


class Instance:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.facts: str | None = None
        self.identities: list[str] = []
        self.stream = OwnStream(lambda: self.facts, self.identify, self.clock, patience=90.0)

    def identify(self) -> str:
        if not self.identities:
            raise MetadataError("no answer")
        return self.identities.pop(0)


@pytest.fixture
def instance() -> Instance:
    return Instance()


def test_lines_wait_until_the_first_boot_knows_the_node(instance: Instance):
    """An instance may be given another node while it boots."""
    instance.identities = ["gpu-001/i-1"]
    assert instance.stream.get(last=False) is None
    instance.facts = "gpu-002/i-1"
    assert instance.stream.get(last=False) == "gpu-002/i-1"


def test_a_first_boot_that_hangs_sends_its_lines_all_the_same(instance: Instance):
    instance.identities = ["gpu-001/i-1"]
    instance.clock.advance(90)
    assert instance.stream.get(last=False) == "gpu-001/i-1"


def test_a_first_boot_that_failed_sends_its_lines_at_the_shutdown(instance: Instance):
    instance.identities = ["gpu-001/i-1"]
    assert instance.stream.get(last=True) == "gpu-001/i-1"


def test_a_silent_metadata_service_is_asked_again(instance: Instance):
    assert instance.stream.get(last=True) is None
    instance.identities = ["unidentified/i-1"]
    assert instance.stream.get(last=True) == "unidentified/i-1"


def test_the_name_stays(instance: Instance):
    instance.facts = "gpu-001/i-1"
    assert instance.stream.get(last=False) == "gpu-001/i-1"
    instance.facts = "gpu-002/i-1"
    assert instance.stream.get(last=False) == "gpu-001/i-1"
