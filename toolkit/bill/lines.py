"""A bill's lines, parsed from an export's texts. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from toolkit.bill.amounts import parse_amount, subtract
from toolkit.bill.columns import Column, is_cluster_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

ANNIVERSARY: Final = "Anniversary"
"""The bill type of what was used in the month. Its invoice comes after the month."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """A line item of AWS's bill. A value of None could not be read."""

    name: str  # for people: the file and its row
    copies: int  # how often it stands in the files; more than once only with one id
    has_id: bool
    item_type: str
    resource: str
    usage_type: str
    operation: str
    start: datetime | None
    end: datetime | None
    usage_amount: Decimal | None
    unblended: Decimal | None
    currency: str
    period: date | None  # first day of the billing period
    bill_type: str
    invoiced: bool
    cluster: str | None  # by its tag; None: it has no such tag
    tags_readable: bool
    reserved: bool  # belongs to a reservation
    savings_effective: Decimal | None
    reservation_effective: Decimal | None
    unused_savings: Decimal | None  # of a recurring fee
    unused_reservation: Decimal | None  # of a RIFee

    @property
    def day(self) -> date | None:
        """Return the UTC day on which its usage began."""
        return None if self.start is None else self.start.date()


def parse_line(name: str, copies: int, texts: Mapping[Column, str | None]) -> BillLine:
    """Return the line of a row. Any text may be damaged."""

    def text(column: Column) -> str:
        return (texts.get(column) or "").strip()

    def amount(column: Column) -> Decimal | None:
        return parse_amount(text(column))

    cluster, tags_readable = _cluster(texts)
    period = parse_time(text(Column.PERIOD))
    return BillLine(
        name=name,
        copies=copies,
        has_id=bool(text(Column.ID)),
        item_type=text(Column.TYPE),
        resource=text(Column.RESOURCE),
        usage_type=text(Column.USAGE_TYPE),
        operation=text(Column.OPERATION),
        start=parse_time(text(Column.START)),
        end=parse_time(text(Column.END)),
        usage_amount=amount(Column.AMOUNT),
        unblended=amount(Column.UNBLENDED),
        currency=text(Column.CURRENCY),
        period=None if period is None else period.date().replace(day=1),
        bill_type=text(Column.BILL_TYPE),
        invoiced=bool(text(Column.INVOICE)),
        cluster=cluster,
        tags_readable=tags_readable,
        reserved=bool(text(Column.RESERVATION)),
        savings_effective=amount(Column.SAVINGS_EFFECTIVE),
        reservation_effective=amount(Column.RESERVATION_EFFECTIVE),
        unused_savings=_difference(amount(Column.SAVINGS_COMMITTED), amount(Column.SAVINGS_USED)),
        unused_reservation=_sum(amount(Column.UNUSED_UPFRONT), amount(Column.UNUSED_RECURRING)),
    )


def parse_time(text: str) -> datetime | None:
    """Return a time in UTC; None if the text is none.

    CSV has `2026-11-21T10:00:00.000Z`, Parquet's timestamps come as `2026-11-21 10:00:00`.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def _cluster(texts: Mapping[Column, str | None]) -> tuple[str | None, bool]:
    """Return the tags' cluster, and whether the tags are readable."""
    if own_column := (texts.get(Column.CLUSTER_TAG) or "").strip():
        return own_column, True
    text = (texts.get(Column.TAGS) or "").strip()
    if not text:
        return None, True
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        return None, False
    if not isinstance(tags, dict):
        return None, False
    for key, value in tags.items():
        if is_cluster_key(key) and isinstance(value, str) and value:
            return value, True
    return None, True


def _difference(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else subtract(first, second)


def _sum(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else subtract(first, -second)
