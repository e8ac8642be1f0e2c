"""Reads AWS's price list of EC2 in one region, as JSON or CSV, into a catalogue.

The file is the one of the Price List Bulk API, `…/AmazonEC2/current/REGION/index.json` or
`index.csv`:
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html

The CSV is read row by row. The JSON is read whole, and takes several times its size.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from toolkit.prices.catalogue import Catalogue, Shape
from toolkit.prices.errors import PricesError
from toolkit.prices.model import parse_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

SERVICE: Final = "AmazonEC2"

# What a Linux instance of ours is. A product that lacks one of these is another one.
_WANTED: Final[Mapping[str, frozenset[str]]] = {
    "family": frozenset({"Compute Instance", "Compute Instance (bare metal)"}),
    "system": frozenset({"Linux"}),
    "tenancy": frozenset({"Shared"}),
    "software": frozenset({"NA"}),
    "capacity": frozenset({"Used"}),
}
# Where a file has them at all.
_WANTED_IF_GIVEN: Final[Mapping[str, frozenset[str]]] = {
    "location": frozenset({"AWS Region"}),  # not a Local Zone
    "license": frozenset({"No License required"}),
    "market": frozenset({"OnDemand"}),
}
_JSON_NAMES: Final = {
    "system": "operatingSystem",
    "tenancy": "tenancy",
    "software": "preInstalledSw",
    "capacity": "capacitystatus",
    "location": "locationType",
    "license": "licenseModel",
    "market": "marketoption",
    "type": "instanceType",
    "region": "regionCode",
    "cpus": "vcpu",
    "memory": "memory",
    "gpus": "gpu",
}
_CSV_NAMES: Final = {
    "family": "Product Family",
    "system": "Operating System",
    "tenancy": "Tenancy",
    "software": "Pre Installed S/W",
    "capacity": "CapacityStatus",
    "location": "Location Type",
    "license": "License Model",
    "market": "MarketOption",
    "type": "Instance Type",
    "region": "Region Code",
    "cpus": "vCPU",
    "memory": "Memory",
    "gpus": "GPU",
}
_CSV_PRICE: Final = ("TermType", "Unit", "PricePerUnit", "Currency", "EffectiveDate")
_HEADER_ROWS: Final = 5
_HOUR: Final = "Hrs"
_TYPE: Final = re.compile(r"[a-z][a-z0-9-]{0,20}\.[a-z0-9-]{1,30}", re.ASCII)
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d", re.ASCII)
_MIB_PER_GIB: Final = 1024
MAX_CELL: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Offer:
    """The price of one product for an hour, in one currency."""

    product: Mapping[str, str]
    currency: str
    usd: str
    effective: str  # the day from which it holds, as ISO text


@dataclass(slots=True)
class Imported:
    """The catalogue of a price list, and the types that are not in it."""

    catalogue: Catalogue
    left_out: dict[str, str] = field(default_factory=dict)  # the reason, by type


def read(path: Path) -> Imported:
    """Read a price list. Raises PricesError."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            start = stream.read(1)
            stream.seek(0)
            if start == "{":
                published, offers = _from_json(json.load(stream))
                return _imported(published, offers, path)
            published, rows = _from_csv(stream)
            return _imported(published, rows, path)
    except OSError as error:
        raise PricesError(f"can't read {path}: {error.strerror}") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise PricesError(f"{path} is no price list of EC2: {error}") from error


def _imported(published: datetime, offers: Iterable[Offer], path: Path) -> Imported:
    by_type: dict[str, list[Offer]] = defaultdict(list)
    regions: Counter[str] = Counter()
    for offer in offers:
        by_type[offer.product["type"]].append(offer)
        regions[offer.product.get("region", "")] += 1
    if len(regions) != 1 or not _REGION.fullmatch(next(iter(regions))):
        places = ", ".join(sorted(regions)) or "none"
        message = f"{path}: expected the prices of one region, found: {places}"
        raise PricesError(message, next_step="import the file of one region")
    today = published.date().isoformat()
    prices: dict[str, Decimal] = {}
    shapes: dict[str, Shape] = {}
    left_out: dict[str, str] = {}
    for name, own in sorted(by_type.items()):
        usd = _price(own, today)
        if isinstance(usd, str):
            left_out[name] = usd
            continue
        prices[name] = usd
        shape = _shape(own[0].product)
        if shape is not None:
            shapes[name] = shape
    if not prices:
        reasons = ", ".join(sorted(set(left_out.values())))
        raise PricesError(f"{path} has no price of a Linux instance in US dollars: {reasons}")
    as_of = int(datetime(published.year, published.month, published.day, tzinfo=UTC).timestamp())
    return Imported(Catalogue(next(iter(regions)), as_of, prices, shapes), left_out)


def _price(offers: Iterable[Offer], today: str) -> Decimal | str:
    """Return the price of a type, or why it has none."""
    in_usd = [offer for offer in offers if offer.currency == "USD"]
    if not in_usd:
        return f"priced in {', '.join(sorted({offer.currency for offer in offers})) or 'nothing'}"
    holding = [offer for offer in in_usd if offer.effective <= today]
    if not holding:
        return "no price holds yet"
    latest = max(offer.effective for offer in holding)
    texts = {offer.usd for offer in holding if offer.effective == latest}
    usd = {parse_usd(text) for text in texts}
    if None in usd:
        return "its price can't be read, or is 0"
    if len(usd) > 1:
        return "several products have different prices"
    return next(price for price in usd if price is not None)


def _shape(product: Mapping[str, str]) -> Shape | None:
    try:
        memory = Decimal(product["memory"].removesuffix(" GiB").replace(",", ""))
        gpus = product.get("gpus", "") or "0"
        shape = Shape(int(product["cpus"]), int(memory * _MIB_PER_GIB), int(gpus))
    except (KeyError, ValueError, InvalidOperation, OverflowError):
        return None
    return shape if shape.cpus > 0 and shape.memory_mib > 0 and shape.gpus >= 0 else None


def _fits(product: Mapping[str, str]) -> bool:
    return (
        all(product.get(key) in values for key, values in _WANTED.items())
        and all(product.get(key) in {None, "", *v} for key, v in _WANTED_IF_GIVEN.items())
        and bool(_TYPE.fullmatch(product.get("type", "")))
    )


def _published(text: object) -> datetime:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        raise ValueError("it has no publication date") from None


# JSON


def _from_json(data: Any) -> tuple[datetime, Iterator[Offer]]:
    table = data if isinstance(data, dict) else {}
    if table.get("offerCode") != SERVICE:
        raise ValueError(f"its offerCode is {table.get('offerCode')!r}, not {SERVICE}")
    return _published(table.get("publicationDate")), _json_offers(table)


def _json_offers(data: Mapping[str, Any]) -> Iterator[Offer]:
    terms = _table(_table(data, "terms"), "OnDemand")
    for sku, product in _table(data, "products").items():
        attributes = _table(product, "attributes")
        facts = {
            key: attributes[name]
            for key, name in _JSON_NAMES.items()
            if isinstance(attributes.get(name), str)
        }
        facts["family"] = str(product.get("productFamily")) if isinstance(product, dict) else ""
        if not _fits(facts):
            continue
        offers = list(_json_terms(facts, _table(terms, sku)))
        yield from offers or [Offer(facts, "nothing", "", "")]


def _json_terms(facts: Mapping[str, str], terms: Mapping[str, Any]) -> Iterator[Offer]:
    for term in terms.values():
        effective = term.get("effectiveDate", "") if isinstance(term, dict) else ""
        for rate in _table(term, "priceDimensions").values():
            if isinstance(rate, dict) and rate.get("unit") == _HOUR:
                for currency, usd in _table(rate, "pricePerUnit").items():
                    yield Offer(facts, currency, str(usd), str(effective).partition("T")[0])


def _table(value: Any, key: str) -> Mapping[str, Any]:
    child = value.get(key) if isinstance(value, dict) else None
    return child if isinstance(child, dict) else {}


# CSV


def _from_csv(stream: Iterable[str]) -> tuple[datetime, Iterator[Offer]]:
    csv.field_size_limit(MAX_CELL)
    reader = csv.reader(stream)
    header: dict[str, str] = {}
    for row in reader:
        header |= {row[0]: row[1]} if len(row) > 1 else {}
        if len(header) == _HEADER_ROWS:
            break
    if header.get("OfferCode") != SERVICE:
        raise ValueError(f"its OfferCode is {header.get('OfferCode')!r}, not {SERVICE}")
    columns = next(reader, [])
    missing = [name for name in (*_CSV_PRICE[:-1], *_required_columns()) if name not in columns]
    if missing:
        raise ValueError(f"it has no column {', '.join(missing)}")
    return _published(header.get("Publication Date")), _csv_offers(columns, reader)


def _required_columns() -> Iterator[str]:
    yield from (_CSV_NAMES[key] for key in (*_WANTED, "type", "region"))


def _csv_offers(columns: list[str], rows: Iterable[list[str]]) -> Iterator[Offer]:
    place = {name: columns.index(name) for name in columns}
    names = {key: place[name] for key, name in _CSV_NAMES.items() if name in place}
    term, unit, usd, currency = (place[name] for name in _CSV_PRICE[:-1])
    effective = place.get(_CSV_PRICE[-1])
    for row in rows:
        if len(row) != len(columns):
            raise ValueError("a row has another number of cells than the column names")
        if row[term] != "OnDemand" or row[unit] != _HOUR:
            continue
        facts = {key: row[index] for key, index in names.items()}
        if _fits(facts):
            day = "" if effective is None else row[effective].partition("T")[0]
            yield Offer(facts, row[currency], row[usd], day)
