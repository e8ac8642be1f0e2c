"""Records that a report leaves out, since nothing certain can be read from them.

One of them ends no report, and none vanishes: the report counts and names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REFUSED: Final = "S3 refuses it"
"""How the reason begins for an object that S3 does not give."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record that is in no sum."""

    name: str  # the object's key, `sacct row 7`, or an instance id
    reason: str
    has_unknown_cost: bool = True  # False: its cost is in the sum from another record

    @property
    def is_refused(self) -> bool:
        """Return whether S3 refused the object. A later call may read it."""
        return self.reason.startswith(REFUSED)
