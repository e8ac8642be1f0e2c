"""Parse the names of checkpoint folders, and tell which of them are committed."""

import re
from pathlib import Path

from toolkit.training.io.durable_files import inside, there

NAME = re.compile(r"step-(?P<step>\d{8,})\.(?P<number>\d{6,})")

COMMITTED = "COMMITTED"


def is_committed(folder: Path) -> bool:
    """Return whether the folder is a checkpoint.

    Raises OSError when that can't be found out.
    """
    return there(folder / COMMITTED)


def number(name: str) -> int:
    """Return the number of the save among all saves of the run."""
    return int(_parsed(name)["number"])


def last_step(root: Path) -> int | None:
    """Return the step of the checkpoint in `root` that was committed last.

    None when there is none.
    """
    every = (folder for folder in inside(root) if NAME.fullmatch(folder.name))
    committed = (folder.name for folder in every if is_committed(folder))
    newest = max(committed, key=number, default=None)
    return int(_parsed(newest)["step"]) if newest else None


def _parsed(name: str) -> re.Match[str]:
    match = NAME.fullmatch(name)
    if not match:
        raise ValueError(f"not a checkpoint's name: {name!r}")
    return match
