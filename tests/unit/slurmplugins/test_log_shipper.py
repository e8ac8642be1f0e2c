"""slurm-log-shipper: where its lines go, and what it reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurmplugins import log_shipper
from slurmplugins.config import burst, node, paths
from slurmplugins.logs.journal import Journal
from tests.fakes.clock import FakeClock
from tests.fakes.engine import burst as burst_json
from tests.fakes.metadata import FakeMetadata

if TYPE_CHECKING:
    from pathlib import Path

NODE = {
    "cluster": "demo", "region": "us-east-1", "head_address": "10.0.0.1", "secret_id": "k",
    "bucket": "b", "shared": {"dns": "d", "mount_name": "m", "path": "/shared"},
}  # fmt: skip
FACTS = {
    "instance-id": "i-0123456789abcdef0",
    "instance-type": "g5.xlarge",
    "placement/availability-zone": "us-east-1a",
    "ami-id": "ami-1",
    "ami-launch-index": "1",
    "local-ipv4": "10.42.1.21",
    "tags/instance/toolkit:nodes": "gpu-[001-003]",
}


@pytest.fixture
def settings(tmp_path: Path) -> node.NodeConfig:
    path = tmp_path / "node.json"
    path.write_text(json.dumps({**NODE, "log_group": "/toolkit/demo"}))
    return node.load(path)


@pytest.fixture
def instance_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "INSTANCE", tmp_path / "instance.json")
    return tmp_path / "instance.json"


def test_a_node_sends_to_the_group_of_its_node_json(settings: node.NodeConfig):
    assert log_shipper.destination(settings).group == "/toolkit/demo"


@pytest.mark.parametrize("group", ["/toolkit/demo", None])
def test_the_head_sends_to_the_group_of_its_burst_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str | None
):
    (tmp_path / "burst.json").write_text(json.dumps({**burst_json(), "log_group": group}))
    monkeypatch.setattr(paths, "BURST", tmp_path / "burst.json")
    assert log_shipper.destination(None).group == group


@pytest.mark.parametrize("group", ["", 7])
def test_a_log_group_that_is_no_text_is_a_problem(group: object):
    with pytest.raises(burst.ConfigError, match="log_group: expected text or null"):
        burst.parse({**burst_json(), "log_group": group})


def test_every_source_has_a_place_of_its_own_and_goes_on_from_it():
    sources = log_shipper.sources(
        FakeClock(), {Journal.key: "c7", "/var/log/slurm/slurmd.log": "5:9"}
    )
    assert len({source.key for source in sources}) == len(sources)
    positions = {source.key: source.position for source in sources}
    assert positions[Journal.key] == "c7"
    assert positions["/var/log/slurm/slurmd.log"] == "5:9"


def test_a_node_that_has_booted_has_the_stream_of_its_facts(
    settings: node.NodeConfig, instance_file: Path
):
    stream = log_shipper.own_stream(settings, FakeMetadata(FACTS), FakeClock())
    assert stream.get(last=False) is None
    instance_file.write_text(json.dumps({"node": "gpu-009", "instance_id": "i-9"}))
    assert stream.get(last=False) == "gpu-009/i-9"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"node": "gpu-001"}'])
def test_damaged_facts_are_none(settings: node.NodeConfig, instance_file: Path, content: str):
    instance_file.write_text(content)
    stream = log_shipper.own_stream(settings, FakeMetadata(FACTS), FakeClock())
    assert stream.get(last=False) is None


def test_a_node_whose_boot_failed_asks_for_its_name_itself(
    settings: node.NodeConfig, instance_file: Path
):
    del instance_file
    stream = log_shipper.own_stream(settings, FakeMetadata(FACTS), FakeClock())
    assert stream.get(last=True) == "gpu-002/i-0123456789abcdef0"


def test_an_instance_whose_tags_name_no_node_is_unidentified(
    settings: node.NodeConfig, instance_file: Path
):
    del instance_file
    metadata = FakeMetadata({"instance-id": "i-1"})
    stream = log_shipper.own_stream(settings, metadata, FakeClock())
    assert stream.get(last=True) == "unidentified/i-1"


def test_the_head_has_its_stream_at_once(instance_file: Path):
    del instance_file
    metadata = FakeMetadata({"instance-id": "i-1"})
    metadata.broken = True
    stream = log_shipper.own_stream(None, metadata, FakeClock())
    assert stream.get(last=False) is None
    metadata.broken = False
    assert stream.get(last=False) == "head/i-1"
