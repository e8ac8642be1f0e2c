"""JSON from files and programs that may be damaged. Every defect is a ValueError. No I/O."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(text: str | bytes) -> Any:
    """Read a document.

    Raises ValueError if it is damaged or nested too deeply.
    Bytes that are not UTF-8 become a replacement character, since one job's bad name must not
    make the other jobs unreadable.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig", errors="replace")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def finite(value: object) -> float:
    """Return a finite number as a float.

    Raises ValueError for infinity, NaN, a bool and everything that is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number but a {type(value).__name__}")  # noqa: TRY004 - one error
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError("not a finite number") from error
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number
