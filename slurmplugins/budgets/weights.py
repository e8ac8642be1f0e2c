"""Billing weights of partitions, from what was really bought. Pure.

slurm.conf has the weights of each pool's first offering. Where fallbacks or spot prices make
instances dearer or cheaper, the weights follow, so that fair share counts dollars. Slurm fixes a
job's billing at its start: a change is for jobs that start later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slurmplugins.config.budgets import ListedWeights

TOLERANCE: Final = Decimal("0.02")
"""The share by which weights may be off: prices of spot move all day."""
_CENT: Final = Decimal("0.01")
_WEIGHT: Final = re.compile(r"([A-Za-z/:_0-9]+)=([0-9]+(?:\.[0-9]+)?)([A-Z]?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Purchase:
    """An instance that lives, or ended lately."""

    pool: str
    usd_per_hour: Decimal
    seconds: float


@dataclass(frozen=True, slots=True)
class WeightChange:
    """A partition's new TRESBillingWeights."""

    partition: str
    weights: str
    ratio: Decimal
    """The price that was paid to the price of the first offering."""

    @property
    def fields(self) -> dict[str, Any]:
        """Return the change as values for a log line and for JSON."""
        return {
            "partition": self.partition,
            "setting": "TRESBillingWeights",
            "value": self.weights,
            "why": f"instances cost {self.ratio:.2f} times the first offering",
        }


def weight_changes(
    listed: Mapping[str, ListedWeights],
    purchases: Iterable[Purchase],
    current: Mapping[str, str],
) -> Iterator[WeightChange]:
    """Yield the partitions whose weights differ from what was bought."""
    bought = tuple(purchases)
    for partition, item in sorted(listed.items()):
        if partition not in current:
            continue
        ratio = _ratio(item, bought)
        wanted = scaled(item.weights, ratio)
        if _differ(wanted, current[partition]):
            yield WeightChange(partition, wanted, ratio)


def scaled(weights: str, ratio: Decimal) -> str:
    """Return weights such as `CPU=100.60,Mem=26.48G`, each multiplied."""
    return ",".join(
        f"{name}={(value * ratio).quantize(_CENT, ROUND_HALF_UP)}{suffix}"
        for name, value, suffix in _parts(weights)
    )


def _ratio(item: ListedWeights, bought: tuple[Purchase, ...]) -> Decimal:
    """Return the price paid to that of the first offerings.

    It is 1 where nothing runs.
    """
    paid = listed = Decimal(0)
    for purchase in bought:
        price = item.usd_per_hour.get(purchase.pool)
        if price:
            seconds = Decimal(purchase.seconds)
            paid += purchase.usd_per_hour * seconds
            listed += price * seconds
    return paid / listed if paid and listed else Decimal(1)


def _differ(wanted: str, current: str) -> bool:
    values = {name: value for name, value, _ in _parts(current)}
    return any(
        abs(value - values.get(name, Decimal(0))) > max(value * TOLERANCE, _CENT)
        for name, value, _ in _parts(wanted)
    )


def _parts(weights: str) -> list[tuple[str, Decimal, str]]:
    matches = (_WEIGHT.fullmatch(part) for part in weights.split(","))
    return [(match[1], Decimal(match[2]), match[3]) for match in matches if match]
