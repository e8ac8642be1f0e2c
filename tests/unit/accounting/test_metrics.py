"""Metrics of a day: whole or not at all, and the last size that is known."""

import pytest

from slurmplugins.model import records
from toolkit.accounting.metrics import LOOK_BACK, Metrics, StoredBytes, rows_of_day

DAY = 86_400
D0 = 1_795_219_200
SIZE = records.SIZE_METRIC
IN, OUT = records.NAT_METRICS


def metrics(*lines, buckets=("a", "b"), gateways=()):
    return Metrics.of(rows_of_day(D0, lines, buckets, gateways))


def test_a_size_is_that_of_all_buckets_with_the_oldest_day():
    found = metrics(
        (SIZE, "a", "StandardStorage", D0, 10),
        (SIZE, "b", "StandardStorage", D0 - DAY, 5),
        (SIZE, "b", "GlacierStorage", D0 - DAY, 3),
        (SIZE, "b", "GlacierObjectOverhead", D0 - DAY, 1),
        (SIZE, "somebody-elses", "StandardStorage", D0, 999),
    )
    assert found.stored == {D0: StoredBytes(15, 4, D0 - DAY)}


def test_a_bucket_without_a_size_leaves_the_day_unknown():
    """A part of the bytes would pass for all of them."""
    assert metrics((SIZE, "a", "StandardStorage", D0, 10)).stored == {}
    assert metrics().stored == {}


def test_the_bytes_of_both_directions_are_added():
    lines = [(IN, "nat-1", "", D0, 7), (OUT, "nat-1", "", D0, 2)]
    assert metrics(*lines, buckets=(), gateways=["nat-1"]).passed == {D0: 9}
    assert metrics(*lines, buckets=(), gateways=[]).passed == {}
    assert metrics(lines[0], buckets=(), gateways=["nat-1"]).passed == {}


def test_a_gateway_that_nobody_used_has_no_bytes_and_not_an_unknown_number():
    lines = [(name, "nat-1", "", D0, 0) for name in records.NAT_METRICS]
    assert metrics(*lines, buckets=(), gateways=["nat-1"]).passed == {D0: 0}


@pytest.mark.parametrize(
    ("later", "known"), [(0, True), (LOOK_BACK, True), (LOOK_BACK + DAY, False), (-DAY, False)]
)
def test_a_day_without_a_size_has_that_of_a_day_before(later, known):
    size = StoredBytes(10, 0, D0)
    assert Metrics({D0: size}).stored_on(D0 + later) == (size if known else None)
