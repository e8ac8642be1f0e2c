"""Laws of cost: the charges sum to the instances' cost exactly.

They hold for any answer of sacct and any instance ledger.
"""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings, strategies as st

from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.attempts import Attempt
from toolkit.accounting.build import build
from toolkit.accounting.charges import Component
from toolkit.accounting.instances import Instance
from toolkit.accounting.lives import billed_lives
from toolkit.accounting.money import apportion, exact_amount, round_to_micro
from toolkit.accounting.report import Key
from toolkit.accounting.tres import Tres
from toolkit.prices import Catalogue, PriceBook, Shape, SpotHistory

# A small catalogue: hypothesis prints whole values when a law is broken.
BUNDLED = Catalogue.bundled()
CATALOGUE = replace(
    BUNDLED,
    prices={name: BUNDLED.prices[name] for name in ("g5.xlarge", "p5.48xlarge")},
    shapes={},
)
NODES = ("gpu-001", "gpu-002", "gpu-003", "")
ZONES = ("us-east-1a", "us-east-1b")
TYPES = ("g5.xlarge", "p5.48xlarge", "x9.huge")
SHAPE = Shape(4, 16_000, 1)
END = 8000

moments = st.integers(0, END)
prices = st.decimals(Decimal("0.000001"), Decimal(150), places=6)


@st.composite
def instances(draw):
    drawn_instances = []
    for number in range(draw(st.integers(0, 6))):
        launched = draw(moments)
        drawn_instances.append(
            Instance(
                instance_id=f"i-{number}",
                node=draw(st.sampled_from(NODES)),
                pool=draw(st.sampled_from(("gpu", "gpu", "head"))),
                instance_type=draw(st.sampled_from(TYPES)),
                zone=draw(st.sampled_from(ZONES)),
                spot=draw(st.booleans()),
                launched=launched,
                ended=draw(st.none() | st.integers(launched, launched + 5000)),
                end_cause=draw(
                    st.sampled_from(("", "suspend", "interruption", "resume-failed", "orphan"))
                ),
                tag_price=draw(st.none() | prices),
                end_seen=draw(st.booleans()),
                running=draw(st.none() | st.integers(launched, launched + 5000)),
                static=draw(st.booleans()),
            )
        )
    return drawn_instances


@st.composite
def attempts(draw):
    drawn_attempts = []
    for key in range(draw(st.integers(0, 8))):
        started = draw(st.none() | moments)
        ended = draw(st.none() | st.integers(started or 0, (started or 0) + 6000))
        drawn_attempts.append(
            Attempt(
                key=key,
                job_id=str(key // 2),
                job=str(key // 2),
                name="x",
                user=draw(st.sampled_from(("ada", "bob", ""))),
                account=draw(st.sampled_from(("vision", "speech", ""))),
                partition="spot",
                state=draw(st.sampled_from(("COMPLETED", "NODE_FAIL", "REQUEUED", "CANCELLED"))),
                exit_codes=(draw(st.sampled_from((0, 85, 1))),),
                restarts=draw(st.none() | st.integers(0, 3)),
                submitted=None if started is None else draw(st.integers(0, started)),
                started=started,
                ended=ended,
                nodes=tuple(draw(st.lists(st.sampled_from(NODES), max_size=3, unique=True))),
                tres=Tres(
                    draw(st.integers(0, 12)), draw(st.integers(0, 40_000)), draw(st.integers(0, 3))
                ),
                comments=f"toolkit:checkpoint={draw(moments)}",
            )
        )
    return drawn_attempts


@st.composite
def books(draw):
    points = draw(
        st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(ZONES), moments, prices))
    )
    return PriceBook("us-east-1", CATALOGUE, SpotHistory.from_points(points))


@st.composite
def windows(draw):
    since = draw(moments)
    return Window(since, draw(st.integers(since + 1, END + 6000)))


def report(all_instances, all_attempts, book, window, policy=None):
    return build(
        cluster="demo",
        attempts=all_attempts,
        instances=all_instances,
        shapes={instance.instance_id: SHAPE for instance in all_instances},
        book=book,
        window=window,
        now=END + 6000,
        policy=policy,
    )


def by_hand(instance, book, window, policy):
    """Return one instance's cost from its lifetime and prices alone."""
    end = window.until if instance.ended is None else instance.ended
    if instance.ended is not None:
        end = max(end, instance.billed_from + policy.minimum_seconds)
    low, high = max(instance.billed_from, window.since), min(end, window.until)
    exact = Fraction(0)
    while low < high:
        hour = low - (low - instance.billed_from) % 3600
        hour_end = min(hour + 3600, high)
        (span,) = book.spans(instance.price_query(), hour, hour + 1)
        exact += exact_amount(span.price.usd_per_hour, hour_end - low)
        low = hour_end
    return round_to_micro(exact)


@given(instances(), attempts(), books(), windows())
@settings(max_examples=150, deadline=None)
def test_charges_and_rows_sum_to_the_instances_cost_exactly(all_instances, tries, book, window):
    policy = Policy()
    result = report(all_instances, tries, book, window, policy)
    assert result.gross == sum(
        by_hand(instance, book, window, policy)
        for instance in billed_lives(all_instances, tries, END + 6000)
    )
    assert sum(result.components().values()) == result.net == result.gross + result.refund
    for keys in ([Key.ACCOUNT, Key.USER], [Key.JOB]):
        assert sum(group.total for group in result.groups(keys)) == result.net
    for cost in result.costs:
        positive = [c for c in cost.charges if c.component is not Component.REFUND]
        assert sum(charge.micro for charge in positive) == cost.gross
        assert all(charge.micro >= 0 for charge in positive)
        assert sum(charge.seconds for charge in positive) == cost.seconds
        assert cost.refund in {0, -cost.gross}


@given(instances(), attempts(), books(), windows())
@settings(max_examples=60, deadline=None)
def test_the_order_of_instances_and_attempts_does_not_change_the_report(
    all_instances, tries, book, window
):
    first = report(all_instances, tries, book, window)
    again = report(all_instances[::-1], tries[::-1], book, window)
    assert first.components() == again.components()
    assert [g.total for g in first.groups([Key.JOB])] == [g.total for g in again.groups([Key.JOB])]


@given(instances(), attempts(), books(), windows(), st.integers(1, END))
@settings(max_examples=60, deadline=None)
def test_two_adjacent_windows_cost_as_much_as_the_one_over_both(
    all_instances, tries, book, window, cut
):
    """Allow a micro-dollar for each instance and window: each rounds once."""
    if not window.since < cut < window.until:
        return
    closed = [instance for instance in all_instances if instance.ended is not None]
    whole_window = report(closed, tries, book, window).gross
    halves = (Window(window.since, cut), Window(cut, window.until))
    parts = sum(report(closed, tries, book, half).gross for half in halves)
    assert abs(whole_window - parts) <= 2 * len(closed)


@given(st.integers(0, 10**12), st.lists(st.fractions(0, 1000), min_size=1, max_size=20))
def test_apportioned_parts_sum_to_the_total_and_are_within_one_of_their_share(total, weights):
    parts = apportion(total, weights)
    assert sum(parts) == total
    if sum(weights):
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - weight * total / sum(weights)) < 1
