"""The metadata service: tokens and errors."""

from __future__ import annotations

from typing import Any

import pytest

from slurmplugins.errors import MetadataError
from slurmplugins.node.imds import Imds
from tests.fakes.clock import FakeClock


class Service:
    """An IMDSv2 that requires its latest token."""

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
