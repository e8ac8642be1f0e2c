"""A closed day: its charges as rows of Parquet, and back as exact parts.

A row has the charge of its day in whole micro-dollars, so any tool can add days up. It has the
exact amount as well, in whole parts of one denominator for each instance. A report adds these and
rounds once, as the exact engine does. A later closing adds rows with differences, so the sum of all
rows is what is known last.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any, Final

from toolkit.accounting.charges import ChargePrices, Component
from toolkit.accounting.cost_policy import hidden_components
from toolkit.accounting.days import day_of
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import apportion, exact_sum, round_to_micro
from toolkit.accounting.parts import InstanceParts, Part
from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.segments import Segment

CHARGE, CORRECTION = "charge", "correction"

PARTS_OF_MICRO: Final = 3_600_000_000
"""A micro-dollar has so many pico-dollars an hour, for a second. A price has twelve places."""
_LARGEST_WHOLE: Final = 10**12
_LARGEST: Final = 10**36

COLUMNS = (
    ("usage_day", "DATE"),
    ("kind", "VARCHAR"),  # charge or correction
    ("status", "VARCHAR"),  # of the day against AWS's bill, as it was at the closing
    ("closing", "INTEGER"),
    ("closed_at", "BIGINT"),
    ("cluster", "VARCHAR"),
    ("instance_id", "VARCHAR"),
    ("node", "VARCHAR"),
    ("instance_type", "VARCHAR"),
    ("lifecycle", "VARCHAR"),
    ("component", "VARCHAR"),
    ("payer", "VARCHAR"),
    ("attempt", "DECIMAL(20, 0)"),  # DBIndex; DuckDB writes HUGEINT to Parquet as DOUBLE
    ("job_id", "VARCHAR"),
    ("account", "VARCHAR"),
    ("user_name", "VARCHAR"),
    ("partition_name", "VARCHAR"),
    ("micro", "BIGINT"),
    ("known", "BOOLEAN"),
    ("seconds", "DOUBLE"),
    ("price_sources", "VARCHAR"),
    ("price_as_of", "BIGINT"),
    ("whole", "BIGINT"),  # seconds are exact_seconds / whole
    ("exact_micro", "DECIMAL(38, 0)"),  # parts: micro-dollars are it / whole / PARTS_OF_MICRO
    ("exact_seconds", "DECIMAL(38, 0)"),
    ("micro_text", "VARCHAR"),  # fractions, where these numbers are too large; else empty
    ("seconds_text", "VARCHAR"),
    ("position", "INTEGER"),  # among the parts of its instance
)
"""The columns of a closed charge."""

Key = tuple[str, Component, int | None, bool]
"""An instance, a component, an attempt, and whether the price is known."""


@dataclass(frozen=True, slots=True)
class Amount:
    """The amounts of one key on a day."""

    micro: int = 0
    exact_micro: Fraction = Fraction(0)
    exact_seconds: Fraction = Fraction(0)
    position: int = 0
    prices: ChargePrices | None = None

    @property
    def sums(self) -> tuple[int, Fraction, Fraction]:
        """Return what a correction may change."""
        return self.micro, self.exact_micro, self.exact_seconds

    def less(self, other: Amount) -> Amount:
        """Return the difference, with this one's place and prices."""
        return Amount(
            self.micro - other.micro,
            self.exact_micro - other.exact_micro,
            self.exact_seconds - other.exact_seconds,
            self.position,
            self.prices or other.prices,
        )


@dataclass(frozen=True, slots=True)
class Closing:
    """The facts that all rows of one closing share."""

    number: int
    at: int
    cluster: str
    status: str


def amounts(segment: Segment) -> dict[Key, Amount]:
    """Return the amounts of a day, by key.

    A refund is an amount of its own.
    """
    hidden = hidden_components(segment.cost_policy)
    found: dict[Key, Amount] = {}
    for item in segment.parts:
        is_divided = item.kind in {Kind.INSTANCE, Kind.RACK}
        shown = [part for part in item.parts if not (is_divided and part.component in hidden)]
        weights = [part.micro for part in shown]
        micros = dict(
            zip(
                map(id, shown), apportion(round_to_micro(exact_sum(weights)), weights),
                strict=True,
            )
        )  # fmt: skip
        refunds: dict[int | None, int] = defaultdict(int)
        for position, part in enumerate(item.parts):
            micro = micros.get(id(part), 0)
            refunds[part.attempt] -= micro
            key = (item.instance_id, part.component, part.attempt, part.price_known)
            found[key] = Amount(micro, part.micro, part.seconds, position, part.prices)
        if item.is_refunded:
            for attempt, micro in refunds.items():
                found[item.instance_id, Component.REFUND, attempt, True] = Amount(micro)
    return found


def differences(
    old: Mapping[Key, Amount], new: Mapping[Key, Amount], *, every: bool = False
) -> dict[Key, Amount]:
    """Return what a correction adds.

    It has all amounts of each instance that differs, or of every one. Those without a difference
    give their parts' places anew.
    """
    none = Amount()
    keys = dict.fromkeys((*new, *old))
    changed = {
        key[0] for key in keys if every or old.get(key, none).sums != new.get(key, none).sums
    }
    return {key: new.get(key, none).less(old.get(key, none)) for key in keys if key[0] in changed}


def rows(
    segment: Segment, found: Mapping[Key, Amount], closing: Closing, kind: str
) -> list[tuple[object, ...]]:
    """Return the rows of a day's amounts."""
    made: list[tuple[object, ...]] = []
    wholes = _wholes(found)
    day = day_of(segment.window.since)
    for (name, component, attempt_key, known), amount in found.items():
        instance = segment.instances.get(name)
        attempt = None if attempt_key is None else segment.attempts.get(attempt_key)
        prices = amount.prices
        made.append(
            (
                day, kind, closing.status, closing.number, closing.at, closing.cluster, name,
                instance.node if instance else "", instance.instance_type if instance else "",
                instance.lifecycle if instance else "", component.value,
                segment.cost_policy.payer(component).value,
                attempt_key, *_names(attempt),
                amount.micro, known, float(amount.exact_seconds),
                " ".join(prices.sources) if prices else "", prices.as_of if prices else None,
                *_numbers(amount, wholes[name]), amount.position,
            )
        )  # fmt: skip
    return made


def _wholes(found: Mapping[Key, Amount]) -> dict[str, int]:
    """Return the denominator of each instance's amounts; 0: it is too large."""
    wholes: dict[str, int] = {}
    for (name, *_), amount in found.items():
        below = amount.exact_micro.denominator
        whole = lcm(below // gcd(below, PARTS_OF_MICRO), amount.exact_seconds.denominator)
        known = wholes.get(name, 1)
        if known % whole:
            whole = lcm(known, whole)
            wholes[name] = whole if known and whole <= _LARGEST_WHOLE else 0
        else:
            wholes[name] = known
    return wholes


def _numbers(amount: Amount, whole: int) -> tuple[int | str | None, ...]:
    """Return the columns of an exact amount."""
    micro, seconds = amount.exact_micro, amount.exact_seconds
    if whole:
        parts = micro.numerator * (PARTS_OF_MICRO * whole // micro.denominator)
        if abs(parts) < _LARGEST:
            whole_seconds = seconds.numerator * (whole // seconds.denominator)
            return whole, parts, whole_seconds, None, None
    return None, None, None, str(micro), str(seconds)


def _names(attempt: Attempt | None) -> tuple[str | None, ...]:
    if attempt is None:
        return (None, None, None, None)
    return attempt.job_id, attempt.account, attempt.user, attempt.partition


def read_amounts(read: Iterable[Sequence[Any]]) -> dict[Key, Amount]:
    """Return the sums of a day's rows, which come by their closing.

    A row is `READ_COLUMNS`.
    """
    sums: dict[Key, Amount] = {}
    for name, component, attempt, known, micro, sources, as_of, position, *numbers in read:
        key = (name, _COMPONENTS[component], attempt, known)
        prices = _prices(sources, as_of) if sources else None
        row = Amount(micro, *_fractions(*numbers), position, prices)
        earlier = sums.get(key)
        sums[key] = row if earlier is None else _later(earlier, row)
    return {key: amount for key, amount in sums.items() if any(amount.sums)}


READ_COLUMNS = (
    "instance_id, component, attempt::HUGEINT, known, micro, price_sources, price_as_of, position,"
    " whole, exact_micro::HUGEINT, exact_seconds::HUGEINT, micro_text, seconds_text"
)


def _later(earlier: Amount, row: Amount) -> Amount:
    return Amount(
        earlier.micro + row.micro,
        earlier.exact_micro + row.exact_micro,
        earlier.exact_seconds + row.exact_seconds,
        row.position,
        row.prices or earlier.prices,
    )


def parts_of(found: Mapping[Key, Amount]) -> dict[str, tuple[Part, ...]]:
    """Return the exact parts of each instance, in their order."""
    by_instance: dict[str, list[tuple[int, Part]]] = defaultdict(list)
    for (name, component, attempt, known), amount in found.items():
        if component is not Component.REFUND:
            part = Part(
                component, attempt, known, amount.exact_micro, amount.exact_seconds, amount.prices
            )
            by_instance[name].append((amount.position, part))
    return {
        name: tuple(part for _, part in sorted(own, key=lambda item: item[0]))
        for name, own in by_instance.items()
    }


def net(found: Mapping[Key, Amount]) -> int:
    """Return the day's sum in micro-dollars."""
    return sum(amount.micro for amount in found.values())


_COMPONENTS = {component.value: component for component in Component}
_price_cache: dict[tuple[str, int], ChargePrices] = {}


def _prices(sources: str, as_of: int) -> ChargePrices:
    key = (sources, as_of)
    if key not in _price_cache:
        _price_cache[key] = ChargePrices(tuple(map(PriceSource, sources.split(" "))), as_of)
    return _price_cache[key]


def _fractions(
    whole: int | None, micro: int, seconds: int, micro_text: str, seconds_text: str
) -> tuple[Fraction, Fraction]:
    if whole is None:
        return Fraction(micro_text), Fraction(seconds_text)
    return Fraction(micro, PARTS_OF_MICRO * whole), Fraction(seconds, whole)


def has_open_tail(item: InstanceParts, *, is_over: bool) -> bool:
    """Return whether a later use may make its idle tail a gap."""
    return (
        not is_over
        and item.next_use is None
        and any(part.component is Component.IDLE_TAIL for part in item.parts)
    )
