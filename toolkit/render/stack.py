"""What only the stack knows: ids and names that AWS chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class StackFacts:
    """Read from the stack's resources once it exists. `subnets` maps a zone to its subnet."""

    bucket: str
    secret_id: str
    subnets: Mapping[str, str]
    shared_dns: str
    shared_mount: str

    @property
    def shared_source(self) -> str:
        """What `mount -t lustre` is told to mount."""
        return f"{self.shared_dns}@tcp:/{self.shared_mount}"
