"""Finds the shipped files: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

import slurmplugins
import toolkit
from toolkit.errors import DeployError

PACKAGE = Path(toolkit.__file__).parent


def directory(name: str) -> Path:
    """Return the directory `ansible`, `templates`, `jobscripts` or `examples`."""
    for root in (PACKAGE / "_assets", PACKAGE.parent):
        if (root / name).is_dir():
            return root / name
    raise DeployError(
        f"the directory {name} is missing from this installation",
        next_step="install the toolkit again, or run it from a whole checkout",
    )


def slurmplugins_directory() -> Path:
    """Return the package that runs on the instances."""
    return Path(slurmplugins.__path__[0])
