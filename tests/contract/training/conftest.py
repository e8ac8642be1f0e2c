"""Stand-ins for what a test is not about, by name."""

import pytest

from tests.fakes.training import JsonCodec, Part, run_ranks


@pytest.fixture
def part():
    return Part


@pytest.fixture
def json_codec():
    return JsonCodec()


@pytest.fixture
def ranks():
    return run_ranks
