"""Slurm versions: `24.11`, or `24.11.5` in the daemons' own output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_VERSION: Final = re.compile(r"(\d{2})\.(\d{2})(?:\.\d+\S*)?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class SlurmVersion:
    """A release series; options appear and disappear between series, not within one."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str) -> SlurmVersion:
        """Parse `24.11` or `24.11.5`; ValueError for anything else."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a Slurm version: {text!r}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.year:02}.{self.month:02}"


def is_release(text: str) -> bool:
    """Return whether the text is a version of Slurm."""
    return _VERSION.fullmatch(text) is not None


SERIES: Final = tuple(
    SlurmVersion.parse(text) for text in ("23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
)
"""The supported series, in order."""
OLDEST: Final = SERIES[0]
"""The first series with auth/slurm, without which a cluster would need munge."""
NEWEST: Final = SERIES[-1]
