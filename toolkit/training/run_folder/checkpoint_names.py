"""Parse the names of checkpoint folders, and tell which of them are committed."""

import re
from pathlib import Path

from toolkit.training.io.durable_files import list_folder, path_exists

NAME = re.compile(r"step-(?P<step>\d{8,})\.(?P<number>\d{6,})")

COMMITTED = "COMMITTED"


def is_committed(folder: Path) -> bool:
    """Return whether the folder is a checkpoint.

    Raises OSError when that can't be found out.
    """
    return path_exists(folder / COMMITTED)


def save_number(name: str) -> int:
    """Return the number of the save among all saves of the run."""
    return int(_match_name(name)["number"])


def last_step(root: Path) -> int | None:
    """Return the step of the checkpoint in `root` that was committed last.

    None when there is none.
    """
    folders = (folder for folder in list_folder(root) if NAME.fullmatch(folder.name))
    committed_names = (folder.name for folder in folders if is_committed(folder))
    newest = max(committed_names, key=save_number, default=None)
    return int(_match_name(newest)["step"]) if newest else None


def _match_name(name: str) -> re.Match[str]:
    match = NAME.fullmatch(name)
    if not match:
        raise ValueError(f"not a checkpoint's name: {name!r}")
    return match
