"""Laws of the sample order.

They hold for any sizes, interruptions and numbers of ranks.
"""

from hypothesis import given, settings, strategies as st

from toolkit.training.sample_order import SampleOrder, fingerprint

orders = st.builds(SampleOrder, st.integers(1, 300), st.integers(1, 64), st.integers(0, 2**32))


@given(orders, st.integers(0, 1000))
def test_an_epoch_is_every_sample_once(order, epoch):
    assert sorted(order.permutation(epoch).tolist()) == list(range(order.size))


@settings(deadline=None)
@given(orders, st.integers(1, 3), st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20))))
def test_interruptions_and_world_sizes_change_neither_samples_nor_their_order(
    order, epochs, attempts
):
    """Compare attempts of (ranks, steps) with one undisturbed rank."""
    whole = [
        (batch.step, batch.ids.tolist())
        for batch in order.batches(step=0, position=0, epochs=epochs, rank=0, world_size=1)
    ]
    taken = []
    step = position = 0
    for world, steps in [*attempts, (1, len(whole))]:
        shares = [
            list(
                order.batches(step=step, position=position, epochs=epochs, rank=r, world_size=world)
            )
            for r in range(world)
        ]
        for batches in list(zip(*shares, strict=True))[:steps]:
            mine = [int(i) for batch in batches for i in batch.mine]
            assert sum(fingerprint(batch.mine) for batch in batches) == fingerprint(mine)
            taken.append((batches[0].step, mine))
            step, position = batches[0].step + 1, batches[0].stop
    assert taken == whole


@given(orders, st.integers(1, 12))
def test_the_weights_make_the_mean_over_ranks_the_mean_over_the_batch(order, world):
    for batches in zip(
        *(
            order.batches(step=0, position=0, epochs=1, rank=rank, world_size=world)
            for rank in range(world)
        ),
        strict=True,
    ):
        losses = [sum(int(i) for i in batch.mine) * batch.weight for batch in batches]
        ids = batches[0].ids.tolist()
        assert abs(sum(losses) / world - sum(ids) / len(ids)) < 1e-6
