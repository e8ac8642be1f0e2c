"""The facts of cluster.yaml and of earlier reports that files of finance need, and their JSON.

A closed month keeps them, so a later change of cluster.yaml, of the list prices or of the month
before changes no file of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from toolkit.config.targets import Targets
from toolkit.finance import recorded_choices
from toolkit.finance.list_prices import ListPrices
from toolkit.finance.recorded_choices import NO_CHOICES, RecordedChoices
from toolkit.prices import Catalogue, Contracts, PriceBook, Shape, SpotHistory
from toolkit.prices.contracts import NegotiatedPrice, Term

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True, slots=True)
class FinanceFacts:
    """The facts of finance's files besides the report."""

    targets: Targets
    prices: ListPrices
    before: Mapping[str, Fraction | None] | None
    """The indicators of the period before, by name; None: they are not known."""
    choices: RecordedChoices = NO_CHOICES


def to_json(facts: FinanceFacts, types: Collection[str]) -> dict[str, Any]:
    """Return the facts as JSON values, with the prices of these types."""
    before = facts.before
    book = facts.prices.book
    contracts = book.contracts
    return {
        "targets": facts.targets.model_dump(mode="json"),
        "before": None
        if before is None
        else {name: None if value is None else str(value) for name, value in before.items()},
        "region": book.region,
        "catalogues": [_catalogue(item, types) for item in (book.catalogue, *book.imported)],
        "contracts_as_of": contracts.as_of,
        "on_demand": [
            _negotiated(item)
            for item in contracts.on_demand
            if not item.instance_type or item.instance_type in types
        ],
        "choices": facts.choices.as_json(),
    }


def from_json(data: Mapping[str, Any]) -> FinanceFacts:
    """Return the facts of JSON values. Raises KeyError, TypeError, ValueError."""
    before = data["before"]
    catalogue, *imported = map(_catalogue_from, data["catalogues"])
    on_demand = tuple(map(_negotiated_from, data["on_demand"]))
    contracts = Contracts(as_of=data["contracts_as_of"], on_demand=on_demand)
    book = PriceBook(data["region"], catalogue, SpotHistory(), contracts, tuple(imported))
    return FinanceFacts(
        Targets(**data["targets"]),
        ListPrices(book),
        None
        if before is None
        else {name: None if text is None else Fraction(text) for name, text in before.items()},
        # Months that were closed by an earlier toolkit have none.
        recorded_choices.from_json(data["choices"]) if "choices" in data else NO_CHOICES,
    )


def _catalogue(catalogue: Catalogue, types: Collection[str]) -> dict[str, Any]:
    return {
        "region": catalogue.region,
        "as_of": catalogue.as_of,
        "prices": {name: str(usd) for name, usd in catalogue.prices.items() if name in types},
        "shapes": {
            name: [shape.cpus, shape.memory_mib, shape.gpus]
            for name, shape in catalogue.shapes.items()
            if name in types
        },
    }


def _catalogue_from(data: Mapping[str, Any]) -> Catalogue:
    return Catalogue(
        region=data["region"],
        as_of=data["as_of"],
        prices={name: Decimal(usd) for name, usd in data["prices"].items()},
        shapes={name: Shape(*sizes) for name, sizes in data["shapes"].items()},
    )


def _negotiated(price: NegotiatedPrice) -> dict[str, Any]:
    usd = price.usd_per_hour
    return {
        "usd_per_hour": None if usd is None else str(usd),
        "discount_percent": str(price.discount_percent),
        "instance_type": price.instance_type,
        "region": price.region,
        "term": [price.term.since, price.term.until],
    }


def _negotiated_from(data: Mapping[str, Any]) -> NegotiatedPrice:
    usd = data["usd_per_hour"]
    return NegotiatedPrice(
        usd_per_hour=None if usd is None else Decimal(usd),
        discount_percent=Decimal(data["discount_percent"]),
        instance_type=data["instance_type"],
        region=data["region"],
        term=Term(*data["term"]),
    )
