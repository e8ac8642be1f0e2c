"""Costs of what is no instance: commitments, storage, the network.

A resource has a name, a kind and one charge, which no job caused. An amount without a price,
or without a known size or usage, is unknown.
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
class Resource:
    """A resource, with its time within the report's."""

    name: str
    kind: Kind
    component: Component
    text: str  # the type and size, as the report writes them
    start: int
    end: int
    usd: Fraction | None  # None: the amount is unknown
    price: Price | None  # an hour's; None: the price has another unit, or is unknown
    as_of: int  # of the price
    why_unknown: str = ""
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
        """Return its one part."""
        source = PriceSource.UNKNOWN if self.usd is None else PriceSource.CONTRACT
        source = self.price.source if self.price is not None else source
        part = Part(
            self.component,
            None,
            self.usd is not None,
            Fraction(0) if self.usd is None else self.usd * MICRO,
            Fraction(self.end - self.start),
            ChargePrices((source,), self.as_of),
        )
        return InstanceParts(
            instance_id=self.name,
            kind=self.kind,
            seconds=self.end - self.start,
            parts=(part,),
            prices=() if self.price is None else (self.price,),
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
        item.usd,
        item.price,
        item.price.as_of,
    )
