"""The order of samples, a fixed function of seed, epoch and position."""

import numpy as np
import pytest

from toolkit.training.sample_order import SampleOrder, content_hash, fingerprint

GOLDEN_0 = [6, 7, 2, 3, 4, 5, 0, 10, 9, 1, 11, 8]
GOLDEN_1 = [10, 9, 11, 0, 4, 6, 5, 7, 1, 2, 3, 8]


def test_the_order_never_changes_between_releases():
    assert SampleOrder(12, 4, seed=0).permutation(0).tolist() == GOLDEN_0
    assert SampleOrder(12, 4, seed=0).permutation(1).tolist() == GOLDEN_1


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        tuple(SampleOrder(50, 4, seed).permutation(epoch))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_the_last_batch_of_an_epoch_is_short_and_weighs_right():
    batches = list(
        SampleOrder(10, 4, 0).batches(step=0, position=0, epochs=1, rank=1, world_size=2)
    )
    assert [len(batch.ids) for batch in batches] == [4, 4, 2]
    assert [batch.weight for batch in batches] == [0.5, 0.5, 1.0]


def test_a_range_over_the_end_of_an_epoch_is_refused():
    with pytest.raises(ValueError, match="one epoch"):
        SampleOrder(10, 4, 0).ids(8, 12)


def test_no_samples_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        SampleOrder(0, 4, 0)


def test_a_fingerprint_tells_sets_apart_and_ignores_order():
    assert fingerprint([1, 2, 3]) == fingerprint([3, 1, 2])
    assert fingerprint([1, 2, 3]) != fingerprint([1, 2, 4])
    assert fingerprint([]) == 0


def test_a_content_hash_sees_values_shapes_and_types():
    zeros = np.zeros(4, dtype="<i4")
    hashes = {
        content_hash(zeros),
        content_hash(zeros.reshape(2, 2)),
        content_hash(zeros.astype("<f4")),
        content_hash(zeros + 1),
    }
    assert len(hashes) == 4
