"""Ledger entries that outlive their cluster have an end."""

import json

import pytest

from toolkit.deploy.kept_records import with_end


def test_an_instance_without_an_end_ends_at_the_moment():
    """Write the end: the report takes the time of the copy."""
    entry = {"launched_at": 1000.0, "ended_at": None, "end_cause": None, "type": "g5.xlarge"}
    assert json.loads(with_end(json.dumps(entry).encode(), 5000.0)) == {
        "launched_at": 1000.0,
        "ended_at": 5000.0,
        "end_cause": "unknown",
        "type": "g5.xlarge",
    }
    assert json.loads(with_end(json.dumps(entry).encode(), 500.0))["ended_at"] == 1000.0


@pytest.mark.parametrize("entry", [b'{"ended_at": 7, "end_cause": "suspend"}', b"{", b"[]"])
def test_an_end_that_is_known_and_what_can_not_be_read_stay(entry):
    assert with_end(entry, 5000.0) == entry
