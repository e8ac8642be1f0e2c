"""The dated catalogue of on-demand prices and instance sizes that ships with the toolkit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING

from toolkit.prices.model import Price, PriceSource, parse_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of an instance."""

    cpus: int
    memory_mib: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """On-demand Linux prices of one region on one day, and the size of each type."""

    region: str
    as_of: int  # epoch seconds
    prices: Mapping[str, Decimal]  # US dollars an hour, by type
    shapes: Mapping[str, Shape]  # by type

    @classmethod
    def bundled(cls) -> Catalogue:
        """Return the catalogue in this package."""
        text = files("toolkit.prices").joinpath("catalogue.json").read_text(encoding="utf-8")
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Catalogue:
        """Parse the catalogue's JSON.

        Prices are strings there, so they never become floats.
        """
        data = json.loads(text)
        day = datetime.strptime(data["as_of"], "%Y-%m-%d").replace(tzinfo=UTC)
        types: dict[str, dict[str, object]] = data["types"]
        prices = {name: parse_usd(str(row["usd"])) for name, row in types.items() if "usd" in row}
        return cls(
            region=data["region"],
            as_of=int(day.timestamp()),
            prices={name: usd for name, usd in prices.items() if usd is not None},
            shapes={name: _shape(row) for name, row in types.items() if "cpus" in row},
        )

    def price(self, instance_type: str, region: str) -> Price | None:
        """Return the list price; None for an unknown type or region."""
        usd = self.prices.get(instance_type) if region == self.region else None
        return None if usd is None else Price(usd, PriceSource.CATALOGUE, self.as_of)


def _shape(row: Mapping[str, object]) -> Shape:
    memory_mib = row["memory_mib"] if "memory_mib" in row else int(str(row["memory_gib"])) * 1024
    return Shape(int(str(row["cpus"])), int(str(memory_mib)), int(str(row.get("gpus", 0))))


def with_shapes_of(catalogue: Catalogue, others: Iterable[Catalogue]) -> Catalogue:
    """Return a catalogue that knows the shapes of the others too."""
    shapes = {name: shape for other in others for name, shape in other.shapes.items()}
    return replace(catalogue, shapes={**shapes, **catalogue.shapes})
