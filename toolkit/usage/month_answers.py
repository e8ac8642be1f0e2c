"""Keep the answers that a closed month's printed report asks of its sums.

They are rows of queries, by the queries' own text, beside the sums of the same days. A report that
asks something else, or a toolkit with other queries, reads the sums.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from toolkit.usage.database import Database

_FILE = "answers.json"
Rows = list[Any]
"""Rows of a query. Those that were kept are lists, and not tuples."""


class Answers:
    """The rows of queries: known ones, or a database's.

    `prepare` makes the database's tables before it is asked.
    """

    def __init__(
        self,
        database: Database,
        known: Mapping[str, Rows] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._database, self._known, self._prepare = database, known or {}, prepare
        self._table = ""
        self.kept: dict[str, Rows] | None = None
        """The rows that were asked for, where somebody wants to keep them."""

    def rows(self, query: str, *, table: str = "") -> Rows:
        """Return the rows of one query.

        `table` is a statement that makes the table which it reads.
        """
        name = hashlib.sha256(f"{table};{query}".encode()).hexdigest()[:32]
        found = self._known.get(name)
        if found is None:
            found = self._asked(query, table)
        if self.kept is not None:
            self.kept[name] = found
        return found

    def _asked(self, query: str, table: str) -> Rows:
        if self._prepare is not None:
            self._prepare()
            self._prepare = None
        if table not in {"", self._table}:
            self._database.run(table)
            self._table = table
        return self._database.rows(query)


def write(folder: Path, answers: Mapping[str, Sequence[Any]]) -> None:
    """Write answers beside a month's sums."""
    text = json.dumps(answers, separators=(",", ":"))
    (folder / _FILE).write_text(text, encoding="utf-8")


def read(folder: Path) -> dict[str, Rows]:
    """Return the answers; none where an earlier toolkit kept the sums alone."""
    try:
        found = json.loads((folder / _FILE).read_bytes())
    except (OSError, ValueError):  # the sums have the same answers
        return {}
    return found if isinstance(found, dict) else {}
