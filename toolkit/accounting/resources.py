"""Costs of what is no instance: commitments, storage, the network.

A resource has a name and a kind, and no job caused it. An amount without a price, or without a
known size or usage, is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import ChargePrices, Component
from toolkit.accounting.instances import Instance, Kind
from toolkit.accounting.money import MICRO
from toolkit.accounting.parts import InstanceParts, Part
from toolkit.prices import Price, PriceSource

if TYPE_CHECKING:
    from toolkit.prices import UnusedCommitment


@dataclass(frozen=True, slots=True)
class Amount:
    """A part of what a resource costs."""

    usd: Fraction | None  # None: it is unknown
    seconds: int  # of the resource's time


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, with its time within the report's."""

    name: str
    kind: Kind
    component: Component
    text: str  # the type and size, as the report writes them
    start: int
    end: int
    amounts: tuple[Amount, ...]  # known and unknown, each at most once
    price: Price | None  # an hour's; None: the price has another unit, or is unknown
    as_of: int  # of the price
    why_unknown: tuple[str, ...] = ()
    zone: str = ""

    @property
    def instance(self) -> Instance:
        """Return it in the form of an instance."""
        return Instance(
            instance_id=self.name,
            node="",
            pool="",
            instance_type=self.text,
            zone=self.zone,
            spot=False,
            launched=self.start,
            ended=None,
            end_cause="",
            tag_price=None,
            kind=self.kind,
        )

    @property
    def parts(self) -> InstanceParts:
        """Return a part for each amount."""
        return InstanceParts(
            instance_id=self.name,
            kind=self.kind,
            seconds=self.end - self.start,
            parts=tuple(map(self._part, self.amounts)),
            prices=() if self.price is None else (self.price,),
        )

    def _part(self, amount: Amount) -> Part:
        source = PriceSource.UNKNOWN if amount.usd is None else PriceSource.CONTRACT
        source = self.price.source if self.price is not None else source
        return Part(
            self.component,
            None,
            amount.usd is not None,
            Fraction(0) if amount.usd is None else amount.usd * MICRO,
            Fraction(amount.seconds),
            ChargePrices((source,), self.as_of),
        )


def unused_commitment(item: UnusedCommitment) -> Resource:
    """Return the part of a commitment that paid for no instance."""
    return Resource(
        item.name,
        Kind.COMMITMENT,
        Component.COMMITMENT,
        item.price.source.value,
        item.start,
        item.end,
        (Amount(item.usd, item.end - item.start),),
        item.price,
        item.price.as_of,
    )
