"""Reading of burst.json, and the report of its problems."""

from __future__ import annotations

import pytest

from slurmplugins.config import burst as burst_config
from slurmplugins.errors import ConfigError
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Lifecycle, Offering
from tests.fakes.engine import burst

SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4024")


def test_a_rendered_configuration_is_read():
    found = burst_config.parse(burst())
    assert found.pools["gpu"].offerings[0] == SPOT
    assert found.pool_of(hostlist.parse("cpu-3")) is found.pools["cpu"]
    assert found.pool_of(hostlist.parse("cpu-9")) is None


def test_all_errors_of_the_configuration_are_reported_at_once():
    broken = burst()
    broken["version"] = 2
    broken["cluster"] = "Demo;"
    broken["bucket"] = None
    gpu = broken["pools"]["gpu"]  # type: ignore[index]
    gpu["nodes"] = "gpu-[1-"
    gpu["offerings"] = [{"type": "g5", "capacity": "cheap", "zone": "mars", "price": "free"}]
    with pytest.raises(ConfigError) as caught:
        burst_config.parse(broken)
    told = "\n".join(caught.value.problems)
    for word in ("version", "cluster", "bucket", "gpu.nodes", "capacity", "price", "'mars'"):
        assert word in told


@pytest.mark.parametrize("static", [9, -1, True, "2"])
def test_static_nodes_are_some_of_the_pools(static: object):
    broken = burst()
    broken["pools"]["gpu"]["static"] = static  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"gpu\.static: expected 0 to 8 nodes"):
        burst_config.parse(broken)


def test_a_node_in_two_pools_is_refused():
    broken = burst()
    broken["pools"]["cpu"]["nodes"] = "gpu-[008-009]"  # type: ignore[index]
    with pytest.raises(ConfigError, match="gpu-008 is in gpu too"):
        burst_config.parse(broken)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path, text: str):
    path = tmp_path / "burst.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        burst_config.load(path)
