"""Slurm's key files on head and nodes, readable by slurm alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.model.slurm_keys import KeySet

MODE: Final = 0o600


def write(root: Path, keys: KeySet) -> bool:
    """Bring slurm.key or slurm.jwks to these keys, and remove the other file.

    Returns whether anything changed. No other user can read a key even while it is written. Raises
    BootError in an image without user slurm. Safe to repeat.
    """
    wanted, other = _paths(root, is_jwks=keys.is_jwks)
    if _holds(wanted, keys.text) and not other.exists():
        return False
    wanted.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(wanted, keys.text.encode(), mode=MODE)
    try:
        shutil.chown(wanted, "slurm", "slurm")
    except LookupError as error:
        raise BootError("the image has no user slurm") from error
    other.unlink(missing_ok=True)
    return True


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and path.stat().st_mode & 0o777 == MODE
    except (OSError, ValueError):
        return False


def _paths(root: Path, *, is_jwks: bool) -> tuple[Path, Path]:
    """Return the file for these keys, and the other one.

    slurm.jwks counts where both exist (init_internal in auth/slurm's internal.c).
    """
    key, jwks = (root / path.relative_to("/") for path in (paths.SLURM_KEY, paths.SLURM_JWKS))
    return (jwks, key) if is_jwks else (key, jwks)
