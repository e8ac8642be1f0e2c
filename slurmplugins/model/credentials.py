"""Temporary credentials of an AWS role."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a role's session. The secrets are in no representation."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(repr=False)
    expires: float
    """Epoch seconds."""
