"""Errors of prices.

* ToolkitError
  * PricesError                   prices-unreadable
"""

from __future__ import annotations

from toolkit.errors import ToolkitError


class PricesError(ToolkitError):
    """A price list or a catalogue is damaged, or has no price that fits."""

    reason = "prices-unreadable"
