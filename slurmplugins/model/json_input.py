"""JSON from files and programs that may be damaged. What is wrong with it is a ValueError. Pure."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(text: str | bytes) -> Any:
    """Read a document. ValueError for one that is damaged, or nested too deeply to be read.

    Bytes that are no UTF-8 become a sign of their own: one job's name spoils no other job.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig", errors="replace")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def finite(value: object) -> float:
    """Take a number that can be calculated with. ValueError for infinity, NaN and all others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number but a {type(value).__name__}")  # noqa: TRY004 - one error
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError("a number without bounds") from error
    if not math.isfinite(number):
        raise ValueError("a number without bounds")
    return number
