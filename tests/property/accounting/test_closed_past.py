"""A past month never changes by itself.

Rows, instances, prices and shapes that came later change no charge of a window that is over. Two
things do, since they are its own facts. The one is the end of a job that ran on. The other is a
job that proves that an instance lived on, where nobody saw the instance's end.
"""

from dataclasses import replace

from hypothesis import given, settings, strategies as st

from tests.property.accounting.test_conservation import (
    BUNDLED,
    CATALOGUE,
    END,
    SHAPE,
    TYPES,
    ZONES,
    attempts,
    instances,
    moments,
    prices,
)
from tests.unit.accounting.samples import an_instance
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.node_shapes import shapes
from toolkit.prices import PriceBook, Shape, SpotHistory
from toolkit.slurm_nodes import NodeInfo

UNTIL = END // 2
LATER = 20_000

points = st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(ZONES), moments, prices))


def charges(facts, now, shape_by_id):
    all_instances, all_attempts, price_points = facts
    report = build(
        cluster="demo",
        attempts=all_attempts,
        instances=all_instances,
        shapes=shape_by_id,
        book=PriceBook("us-east-1", CATALOGUE, SpotHistory.from_points(price_points)),
        window=Window(0, UNTIL),
        now=now,
    )
    return sorted(report.charges(), key=repr)


def shape_of(all_instances, shape=SHAPE):
    return {instance.instance_id: shape for instance in all_instances}


def later_instance(instance, number):
    moved = max(UNTIL - instance.launched, 0)
    return replace(
        instance,
        instance_id=f"i-later-{number}",
        launched=instance.launched + moved,
        running=None if instance.running is None else instance.running + moved,
        ended=None if instance.ended is None else instance.ended + moved,
    )


def later_attempt(attempt, number):
    submitted = max(attempt.submitted or 0, UNTIL)
    started = None if attempt.started is None else max(attempt.started, submitted)
    ended = attempt.ended if attempt.ended is None else max(attempt.ended, started or submitted)
    return replace(
        attempt,
        key=1000 + number,
        submitted=submitted,
        started=started,
        ended=ended,
    )


facts = st.tuples(instances(), attempts(), points)


@given(facts, facts)
@settings(max_examples=200, deadline=None)
def test_what_began_later_changes_no_charge_of_a_window_that_is_over(base, later):
    instances_then, attempts_then, points_then = base
    instances_then = [replace(instance, end_seen=True) for instance in instances_then]
    shape_by_id = shape_of(instances_then)
    first = charges((instances_then, attempts_then, points_then), LATER, shape_by_id)
    more = [later_instance(instance, number) for number, instance in enumerate(later[0])]
    more_attempts = [later_attempt(attempt, number) for number, attempt in enumerate(later[1])]
    more_points = [(kind, zone, max(second, UNTIL), usd) for kind, zone, second, usd in later[2]]
    shape_by_id |= shape_of(more, Shape(64, 512_000, 8))
    everything = (
        [*instances_then, *more],
        [*attempts_then, *more_attempts],
        [*points_then, *more_points],
    )
    assert charges(everything, LATER + 5000, shape_by_id) == first


@given(st.integers(1, 512), st.integers(1, 2_000_000), st.integers(0, 16))
def test_todays_nodes_change_no_shape_of_a_type_in_the_catalogue(cpus, memory_mib, gpus):
    node = NodeInfo(
        name="gpu-001",
        states=frozenset({"IDLE"}),
        cpus=cpus,
        memory_mib=memory_mib,
        gpus=gpus,
        partitions=(),
        instance_id="",
        instance_type="g5.xlarge",
        address="",
        reason="",
    )
    instance = an_instance()
    assert shapes([instance], [node], BUNDLED) == shapes([instance], [], BUNDLED)
