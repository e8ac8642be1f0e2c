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
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.instances import Instance
from toolkit.accounting.lives import billed_lives
from toolkit.accounting.money import apportion, exact_amount, round_to_micro
from toolkit.accounting.racks import RackNode
from toolkit.accounting.report import Key
from toolkit.accounting.tres import Tres
from toolkit.prices import (
    Catalogue,
    Contracts,
    Life,
    Price,
    PriceBook,
    PriceSource,
    Shape,
    SpotHistory,
    cover,
)
from toolkit.prices.contracts import Match, NegotiatedPrice, Reservation, SavingsPlan, Term

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
STATES = (
    "COMPLETED",
    "NODE_FAIL",
    "REQUEUED",
    "CANCELLED",
    "RUNNING",
    "SUSPENDED",
    "RESIZING",
)
SHAPE = Shape(4, 16_000, 1)
END = 8000
ALL = (Payer.JOB, Payer.CLUSTER, Payer.SHARED)

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
def stopped_instances(draw):
    """Draw instances of which some were stopped."""
    stops = st.lists(st.tuples(moments, st.none() | moments), max_size=3).map(tuple)
    return [replace(instance, stops=draw(stops)) for instance in draw(instances())]


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
                state=draw(st.sampled_from(STATES)),
                exit_codes=(draw(st.sampled_from((0, 85, 1))),),
                restarts=draw(st.none() | st.integers(0, 3)),
                submitted=None if started is None else draw(st.integers(0, started)),
                eligible=draw(st.none() | moments),
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


@st.composite
def contracts(draw):
    term = Term(*sorted((draw(moments), draw(moments) + 1)))
    count = draw(st.integers(1, 3))
    return Contracts(
        as_of=1,
        on_demand=tuple(
            draw(
                st.lists(
                    st.builds(
                        NegotiatedPrice,
                        st.none() | prices,
                        st.decimals(1, 99, places=1),
                        st.sampled_from(("", *TYPES)),
                    ),
                    max_size=2,
                )
            )
        ),
        reservations=(
            Reservation("r", PriceSource.RESERVED, Match("g5.xlarge"), count, draw(prices), term),
        ),
        savings_plans=(SavingsPlan("s", Match(), draw(prices), term, Decimal(20)),),
    )


policies = st.builds(
    CostPolicy,
    **dict.fromkeys(("boot", "idle_gap", "idle_tail", "failed_launch"), st.sampled_from(ALL)),
    **dict.fromkeys(("idle", "unallocated", "storage", "overhead"), st.sampled_from(ALL[1:])),
    rack_idle=st.sampled_from((*ALL[1:], Payer.HIDDEN)),
)


def rack(usd):
    return {"gpu-003": RackNode(Price(usd, PriceSource.RACK, 1), SHAPE)}


def report(all_instances, all_attempts, book, window, policy=None, **more):
    return build(
        cluster="demo",
        attempts=all_attempts,
        instances=all_instances,
        shapes={instance.instance_id: SHAPE for instance in all_instances},
        book=book,
        window=window,
        now=END + 6000,
        policy=policy,
        **more,
    )


def lives_of(all_instances, tries, window):
    for item in billed_lives(all_instances, tries, END + 6000):
        end = window.until if item.ended is None else max(item.ended, item.billed_from + 60)
        yield Life(item.price_query(), item.billed_from, end)


def by_hand(instance, book, window, policy):
    """Return one instance's cost from its lifetime and prices alone."""
    exact = Fraction(0)
    life_end = window.until if instance.ended is None else instance.ended
    for start, end in instance.running_spans(life_end):
        if instance.ended is not None or end < window.until:
            end = max(end, start + policy.minimum_seconds)  # noqa: PLW2901 - as EC2 bills it
        low, high = max(start, window.since), min(end, window.until)
        while low < high:
            hour = low - (low - start) % 3600
            hour_end = min(hour + 3600, high)
            (span,) = book.spans(instance.price_query(), hour, hour + 1)
            exact += exact_amount(span.price.usd_per_hour, hour_end - low)
            low = hour_end
    return round_to_micro(exact)


@given(stopped_instances(), attempts(), books(), windows())
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


@given(instances(), attempts(), books(), windows(), st.tuples(contracts(), policies, prices))
@settings(max_examples=150, deadline=None)
def test_no_contract_rack_or_payer_loses_a_micro_dollar(all_instances, tries, book, window, drawn):
    agreed, payers, rack_price = drawn
    book = replace(book, contracts=agreed)
    more = {"cost_policy": payers, "racks": rack(rack_price)}
    result = report(all_instances, tries, book, window, **more)
    assert sum(result.components().values()) == result.net == sum(c.net for c in result.costs)
    for keys in ([Key.ACCOUNT, Key.USER], [Key.JOB]):
        assert sum(group.total for group in result.groups(keys)) == result.net
    assert sum(share.micro for share in result.shares) == 0
    for cost in result.costs:
        assert sum(charge.micro for charge in cost.charges) == cost.net
    # Who pays changes no component, but for racks, whose idle time a policy may hide.
    default = report(all_instances, tries, book, window, racks=rack(rack_price))
    shown = {key: usd for key, usd in result.components().items() if key != Component.RACK_IDLE}
    difference = [abs(shown.get(key, 0) - default.components().get(key, 0)) for key in Component]
    assert sum(difference) <= len(Component) * len(result.costs)


@given(instances(), attempts(), books(), windows(), contracts())
@settings(max_examples=100, deadline=None)
def test_what_was_paid_in_advance_comes_to_its_price(all_instances, tries, book, window, agreed):
    """Allow a micro-dollar for each instance and commitment: each rounds once."""
    book = replace(book, contracts=replace(agreed, savings_plans=()))
    result = report(all_instances, tries, book, window)
    (reservation,) = agreed.reservations
    seconds = min(reservation.term.until, window.until) - max(reservation.term.since, window.since)
    whole = Fraction(reservation.usd_per_hour) * reservation.count * max(seconds, 0) / 3600
    unused = sum(cost.gross for cost in result.costs if cost.instance_id == "r")
    spans = cover(book, lives_of(all_instances, tries, window), window.since, window.until).spans
    paid = sum(
        Fraction(span.price.usd_per_hour) * (span.end - span.start)
        for own in spans.values()
        for span in own
    )
    assert abs(unused + paid / 3600 * 10**6 - whole * 10**6) <= 1


@given(instances(), attempts(), books(), windows())
@settings(max_examples=60, deadline=None)
def test_the_order_of_instances_and_attempts_does_not_change_the_report(
    all_instances, tries, book, window
):
    first = report(all_instances, tries, book, window)
    again = report(all_instances[::-1], tries[::-1], book, window)
    assert first.components() == again.components()
    assert [g.total for g in first.groups([Key.JOB])] == [g.total for g in again.groups([Key.JOB])]


@given(stopped_instances(), attempts(), books(), windows(), st.integers(1, END))
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
