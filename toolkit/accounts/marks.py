"""The toolkit's marks on an association: words at the start of its comment in slurmdbd.

They say what of the association is the toolkit's. What an admin wrote follows them, and stays.
sacctmgr keeps a comment in small letters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LEFT: Final = "left"
"""Its user left; the value is MaxSubmitJobs before."""
MADE: Final = "made"
"""The toolkit made it, so the toolkit may remove it."""
SET: Final = "set"
"""The limits that the toolkit set, with their values."""
_ORDER: Final = (LEFT, MADE, SET)
_MARK: Final = re.compile(rf"toolkit:({'|'.join(_ORDER)})(?:=(\S*))?(?: |$)", re.ASCII)
_QUOTES: Final = frozenset("\"'`\\")


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks in a comment, and the words of others after them."""

    values: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""

    @classmethod
    def parse(cls, comment: str) -> Marks:
        """Split a comment."""
        values, begin = {}, 0
        while match := _MARK.match(comment, begin):
            values[match[1]] = match[2] or ""
            begin = match.end()
        return cls(values, comment[begin:])

    @property
    def text(self) -> str:
        """Return the comment with these marks."""
        words = (
            f"toolkit:{name}={value}" if (value := self.values[name]) else f"toolkit:{name}"
            for name in _ORDER
            if name in self.values
        )
        return " ".join((*words, *filter(None, (self.rest,))))

    @property
    def writable(self) -> bool:
        """Return whether sacctmgr writes the words of others as they are.

        It cuts quotes off and makes letters small, and slurmdbd escapes nothing.
        """
        plain = self.rest.isascii() and self.rest.isprintable() and not _QUOTES & set(self.rest)
        return plain and self.rest == self.rest.lower()

    def value(self, name: str) -> str | None:
        """Return a mark's value; None without the mark."""
        return self.values.get(name)

    def marked(self, name: str, value: str = "") -> Marks:
        """Return these with one mark more, or with another value."""
        return Marks({**self.values, name: value}, self.rest)

    def unmarked(self, name: str) -> Marks:
        """Return these without one mark."""
        return Marks({key: text for key, text in self.values.items() if key != name}, self.rest)
