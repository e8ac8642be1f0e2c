"""The streams of what a person names."""

from __future__ import annotations

import pytest

from tests.unit.deploy.samples import example
from toolkit.logs.errors import LogsAbsent, TargetUnknown
from toolkit.logs.log_group import Stream
from toolkit.logs.targets import find_streams


class FakeGroup:
    """A group with the streams of a test."""

    name = "/toolkit/demo"

    def __init__(self, *names: str) -> None:
        self._streams = [Stream(*name.split("/"), 0.0) for name in names]

    def streams(self, prefix: str = "") -> list[Stream]:
        return [stream for stream in self._streams if stream.name.startswith(prefix)]


GROUP = FakeGroup(
    "gpu-001/i-00000001", "gpu-001/i-00000002", "gpu-002/i-00000003", "head/i-00000004"
)


def find(target: str) -> list[str]:
    return [stream.instance for stream in find_streams(example("local"), GROUP, target)]


def test_a_node_has_the_streams_of_all_its_instances():
    assert find("gpu-001") == ["i-00000001", "i-00000002"]


def test_an_instance_has_one_stream_whatever_its_node():
    assert find("i-00000003") == ["i-00000003"]


def test_the_head_is_found_by_its_name():
    assert find("head") == ["i-00000004"]


@pytest.mark.parametrize("target", ["gpu-003", "i-0000000f"])
def test_what_has_sent_nothing_is_told_apart_from_a_typo(target: str):
    with pytest.raises(LogsAbsent, match=f"{target} has sent no line"):
        find(target)


@pytest.mark.parametrize("target", ["gpu-01", "gpu", "gpu-00", "", "GPU-001", "i-1", "gpu-001/"])
def test_a_typo_is_no_prefix_of_other_names(target: str):
    with pytest.raises(TargetUnknown):
        find(target)
