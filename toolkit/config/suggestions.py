"""Finds what a misspelled word may have meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for a near miss.

    Otherwise it is the list of known words.
    """
    names = sorted(choices)
    matches = get_close_matches(word, names, n=1, cutoff=0.6)
    if matches:
        return f"; did you mean '{matches[0]}'?"
    return f"; expected one of: {', '.join(names)}" if names else ""
