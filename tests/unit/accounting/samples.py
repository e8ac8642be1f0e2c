"""Makers of the values that accounting works on, with defaults."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from toolkit.accounting.attempts import Attempt
from toolkit.accounting.instances import Instance
from toolkit.accounting.tres import Tres
from toolkit.prices import Catalogue, PriceBook, Shape, SpotHistory

T0 = 1_795_255_200  # 2026-11-21 10:00:00 UTC
G5 = Shape(cpus=4, memory_mib=16_000, gpus=1)
WHOLE = Tres(cpus=4, memory_mib=16_000, gpus=1)


def an_instance(instance_id: str = "i-1", **changes: Any) -> Instance:
    values: dict[str, Any] = {
        "instance_id": instance_id,
        "node": "gpu-001",
        "pool": "gpu",
        "instance_type": "g5.xlarge",
        "zone": "us-east-1a",
        "spot": True,
        "launched": T0,
        "ended": T0 + 7200,
        "end_cause": "suspend",
        "tag_price": Decimal("0.4024"),
    }
    return Instance(**(values | changes))


def an_attempt(key: int = 1, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "key": key,
        "job_id": "7",
        "job": "7",
        "name": "digits",
        "user": "ada",
        "account": "vision",
        "partition": "spot",
        "state": "COMPLETED",
        "exit_codes": (0, 0),
        "restarts": None,
        "submitted": T0,
        "started": T0 + 600,
        "ended": T0 + 3600,
        "nodes": ("gpu-001",),
        "tres": WHOLE,
    }
    return Attempt(**(values | changes))


def a_book(*points: tuple[str, str, int, str]) -> PriceBook:
    """Return a price book with these spot prices.

    By default g5.xlarge in us-east-1a costs 0.36 an hour from before T0.
    """
    points = points or (("g5.xlarge", "us-east-1a", T0 - 1000, "0.36"),)
    history = SpotHistory.from_points(
        (kind, zone, at, Decimal(usd)) for kind, zone, at, usd in points
    )
    return PriceBook("us-east-1", Catalogue.bundled(), history)
