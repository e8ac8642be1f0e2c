"""Which of the journal's records still mean something. Pure."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.book import Record

COMPACTED: Final = "compacted"

_OF_A_RUN: Final = frozenset({"claim", "release", "intent", "failed"})
"""What these say is over with the run, once the cloud has settled."""


def kept(
    records: Sequence[Record],
    recent: Callable[[Record], bool],
    young: Callable[[Record], bool],
    alive: Callable[[str], bool],
) -> list[Record]:
    """Without those that change nothing of the sum. `recent`: the cloud may not have settled;
    `young`: the cloud may list what it is about; `alive`: the run is.
    """
    ended: set[str] = set()
    for record in records:
        if record.get("kind") == "ended":
            with contextlib.suppress(KeyError, TypeError):  # a damaged line
                ended.update(record["ids"])
    housed: set[str] = set()
    """Nodes that had a machine, up to here, whose end is not decided."""

    def matters(record: Record) -> bool:
        kind = record.get("kind")
        if kind in _OF_A_RUN:
            return recent(record) or alive(str(record.get("run")))
        if kind == COMPACTED or not young(record):
            return False
        if kind == "launched":
            living = [node for node, machine, *_ in record["machines"] if machine not in ended]
            housed.update(living)
            return bool(living) or recent(record)
        return kind != "let-go" or not housed.isdisjoint(record["nodes"])

    found = []
    for record in records:
        try:
            kept = matters(record)
        except (KeyError, TypeError, ValueError, AttributeError):  # damaged, or a newer version's
            kept = young(record)
        found += [record] if kept else []
    return found
