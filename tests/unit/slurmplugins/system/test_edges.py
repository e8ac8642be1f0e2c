"""Smaller edges: the capacity memory's file, the metadata service, the log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.errors import MetadataError
from slurmplugins.model.offering import Lifecycle, Offering
from slurmplugins.node.imds import Imds
from slurmplugins.state import unavailable_offerings
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock

SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4024")


# Offerings


def test_when_all_offerings_failed_the_one_due_first_is_tried():
    one, two = SPOT, Offering("p4d", Lifecycle.SPOT, "us-east-1a", "1")
    known = {
        one.key: unavailable_offerings.Setback("X", 20.0),
        two.key: unavailable_offerings.Setback("X", 10.0),
    }
    assert unavailable_offerings.in_turn([one, two], {}) == (one, two)
    assert unavailable_offerings.in_turn([one, two], {one.key: known[one.key]}) == (two,)
    assert unavailable_offerings.in_turn([one, two], known) == (two,)


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 3}', '{"x": {"code": "c"}}'])
def test_a_damaged_memory_is_an_empty_one(tmp_path, text: str):
    path = tmp_path / "offerings.json"
    path.write_text(text)
    assert unavailable_offerings.OfferingMemory(path, FakeClock()).setbacks() == {}


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_clock_that_is_set_changes_no_setbacks_length(tmp_path, jump: float):
    clock = FakeClock()
    memory = unavailable_offerings.OfferingMemory(tmp_path / "offerings.json", clock)
    memory.remember(SPOT, error_codes.error("InsufficientInstanceCapacity", "none"))
    clock.jump(jump)
    clock.advance(unavailable_offerings.CAPACITY_SECONDS - 1)
    assert memory.setbacks()
    clock.advance(2)
    assert memory.setbacks() == {}


# The metadata service


class Service:
    """IMDSv2: a token is needed and ends."""

    def __init__(self) -> None:
        self.tokens = 0
        self.valid = ""
        self.statuses: dict[str, tuple[int, str]] = {}

    def request(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        if method == "PUT":
            self.tokens += 1
            self.valid = f"t{self.tokens}"
            return 200, self.valid
        if headers["X-aws-ec2-metadata-token"] != self.valid:
            return 401, ""
        return self.statuses.get(path, (404, ""))


def test_one_token_serves_many_requests_and_is_renewed_when_it_ends():
    service, clock = Service(), FakeClock()
    metadata = Imds(service, clock)
    service.statuses["/latest/meta-data/instance-id"] = (200, "i-1")
    assert [metadata.get("instance-id") for _ in range(3)] == ["i-1"] * 3
    assert metadata.get("spot/instance-action") is None
    assert service.tokens == 1
    clock.advance(6 * 3600)
    assert metadata.get("instance-id") == "i-1"
    assert service.tokens == 2


def test_a_token_the_service_forgot_is_renewed_at_once():
    service = Service()
    metadata = Imds(service, FakeClock())
    service.statuses["/latest/meta-data/instance-id"] = (200, "i-1")
    metadata.get("instance-id")
    service.valid = "another"
    assert metadata.get("instance-id") == "i-1"


def test_errors_of_the_service_are_ours():
    service = Service()
    service.statuses["/latest/meta-data/x"] = (500, "")
    with pytest.raises(MetadataError, match="500"):
        Imds(service, FakeClock()).get("x")


# The log


def test_a_line_is_one_json_object_bounded_and_without_secrets():
    lines: list[str] = []
    log = Log(lines.append, FakeClock()).bind(run="r")
    log.info("called", slurm_key="hush", nodes=["a\nb"], text="x" * 100_000)
    record = json.loads(lines[0])
    assert (record["run"], record["slurm_key"], record["event"]) == ("r", "[redacted]", "called")
    assert lines[0].count("\n") == 1
    assert len(lines[0]) < 8100
