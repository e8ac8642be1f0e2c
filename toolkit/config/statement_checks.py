"""Checks what cluster.yaml says of statements and grants."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolkit.config.money import parse_moment
from toolkit.config.raw import items, mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding


def statement_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield grants that end before they begin, and list prices without rates."""
    for index, account in enumerate(items(raw, "accounts")):
        grant = mapping(account, "grant")
        with suppress(ValueError):
            if grant and parse_moment(grant.get("since")) > parse_moment(grant.get("until")):
                yield ("accounts", index, "grant", "until"), "expected a day not before `since`"
    section = mapping(raw, "statements")
    card = mapping(section, "rate_card")
    if section.get("list_price") == "rate-card" and not card:
        yield ("statements", "list_price"), "expected statements.rate_card with its rates"
    if card and not card.get("node_hours") and "gpu_hour" not in card:
        yield ("statements", "rate_card"), "expected gpu_hour, node_hours or both"
