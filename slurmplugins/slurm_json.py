"""What Slurm's data parsers write, whatever their version. Pure."""

from __future__ import annotations


def number(value: object) -> float | None:
    """A number, plain or as newer data parsers write it: {set, infinite, number}. None: unset."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return float(value) if isinstance(value, int | float) else None
