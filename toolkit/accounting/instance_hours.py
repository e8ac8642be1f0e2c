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


def charged_prices(instance: Instance, book: PriceBook, start: int, end: int) -> list[PriceSpan]:
    """Return the prices charged for start ≤ t < end, in order."""
    if not instance.spot:
        return book.spans(instance.price_query(), start, end)
    whole_hours = (start - instance.billed_from) // SECONDS_PER_HOUR
    first_hour = instance.billed_from + whole_hours * SECONDS_PER_HOUR
    spans = []
    for span in book.spans(instance.price_query(), first_hour, end):
        low = max(_next_hour(instance, span.start), start)
        high = min(_next_hour(instance, span.end), end)
        if low < high:
            spans.append(PriceSpan(low, high, span.price))
    return spans


def _next_hour(instance: Instance, second: int) -> int:
    """Return the first beginning of an instance-hour from this second on."""
    begun_hours = -((instance.billed_from - second) // SECONDS_PER_HOUR)
    return instance.billed_from + begun_hours * SECONDS_PER_HOUR
