"""The price of a spot instance's seconds, which changes only between its own hours.

"You pay the Spot price that's in effect at the beginning of each instance-hour for your running
instance. If Spot price changes after you launch the instance, the new price is charged against the
instance usage for the subsequent hour." https://aws.amazon.com/ec2/faqs/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounting.money import SECONDS_PER_HOUR
from toolkit.prices import PriceSpan

if TYPE_CHECKING:
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook


def charged_prices(
    instance: Instance, book: PriceBook, started: int, since: int, until: int
) -> list[PriceSpan]:
    """Return the prices charged for since ≤ t < until, in order.

    `started` is the second of the start from which the instance has run since.
    """
    if not instance.spot:
        return book.spans(instance.price_query(), since, until)
    first_hour = since - (since - started) % SECONDS_PER_HOUR
    spans = []
    for span in book.spans(instance.price_query(), first_hour, until):
        low = max(_next_hour(started, span.start), since)
        high = min(_next_hour(started, span.end), until)
        if low < high:
            spans.append(PriceSpan(low, high, span.price))
    return spans


def _next_hour(started: int, second: int) -> int:
    """Return the first beginning of an instance-hour from this second on."""
    return second + (started - second) % SECONDS_PER_HOUR
