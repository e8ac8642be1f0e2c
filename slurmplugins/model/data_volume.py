"""The head's data volume: where it is mounted, and how much of it must be free. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

PATH: Final = "/srv/head"
"""The head mounts it here, with slurmctld's StateSaveLocation and MariaDB's databases."""
LEAST_FREE: Final = 0.05
"""The share of its space, and of its inodes, below which it counts as full."""
ENOUGH_BYTES: Final = 5 * 2**30
"""With so much space free, no share is too little: a large volume has weeks left."""


class FilesystemCounts(Protocol):
    """A filesystem's blocks and inodes, as os.statvfs counts them."""

    @property
    def f_frsize(self) -> int: ...
    @property
    def f_blocks(self) -> int: ...
    @property
    def f_bfree(self) -> int: ...
    @property
    def f_bavail(self) -> int: ...
    @property
    def f_files(self) -> int: ...
    @property
    def f_favail(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FreeShares:
    """The free shares of a filesystem, from 0 to 1."""

    space: float
    inodes: float
    bytes: int = 0
    """The free space itself."""


def free_shares(counts: FilesystemCounts) -> FreeShares:
    """Return what is free for users other than root.

    df counts alike.
    """
    used = counts.f_blocks - counts.f_bfree
    return FreeShares(
        space=_share(counts.f_bavail, used + counts.f_bavail),
        inodes=_share(counts.f_favail, counts.f_files),
        bytes=counts.f_bavail * counts.f_frsize,
    )


def shortage(free: FreeShares) -> str:
    """Return what the volume lacks; empty if it has enough."""
    space = free.space if free.bytes < ENOUGH_BYTES else 1.0
    amounts = {"space": space, "inodes": free.inodes}
    texts = [
        f"{math.floor(share * 1000) / 10:.1f} % of its {name}"
        for name, share in amounts.items()
        if share < LEAST_FREE
    ]
    if not texts:
        return ""
    return f"{PATH} has {' and '.join(texts)} free, less than {LEAST_FREE * 100:.0f} %"


def _share(part: int, whole: int) -> float:
    """Return a part's share of the whole.

    Without a whole there is no limit, so all is free.
    """
    return part / whole if whole else 1.0
