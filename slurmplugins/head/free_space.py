"""Reads what is free of the head's data volume."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurmplugins.model import data_volume

if TYPE_CHECKING:
    from slurmplugins.model.data_volume import FreeShares


def read_free_shares() -> FreeShares | None:
    """Return the free shares; None if the volume can't be read.

    A site's controller has no such volume.
    """
    try:
        return data_volume.free_shares(os.statvfs(data_volume.PATH))
    except OSError:
        return None
