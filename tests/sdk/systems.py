"""The AWS SDK of each supported system, as systems.toml lists them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = Path(__file__).with_name("systems.toml")
TEST_PACKAGES = frozenset(
    {"hypothesis", "pytest", "pytest-randomly", "pytest-socket", "pytest-timeout", "pyyaml"}
)
"""What the tests of the tier import, of pyproject's extra `dev`."""


@dataclass(frozen=True)
class System:
    """A system, with its Python and the packages of its SDK."""

    name: str
    base_image: str
    python: str
    packages: Mapping[str, str]

    @property
    def age(self) -> tuple[int, ...]:
        """Return botocore's version, to compare."""
        return tuple(int(part) for part in self.packages["botocore"].split("."))


def systems() -> list[System]:
    """Return the supported systems."""
    rows = tomllib.loads(SYSTEMS.read_text())
    return [System(name, **row) for name, row in rows.items()]


def oldest(known: Iterable[System]) -> System:
    """Return the system with the oldest SDK."""
    return min(known, key=lambda system: system.age)


def requirements(system: System, project: Mapping[str, Any]) -> list[str]:
    """Return what pip installs to run the tests with this system's SDK.

    The local cloud needs toolkit's own packages. Only their requirement of boto3 does not count
    here: it is for the admin's machine.
    """
    extras = project["optional-dependencies"]
    others = [*project["dependencies"], *extras["local"]]
    tests = [item for item in extras["dev"] if _name(item) in TEST_PACKAGES]
    pinned = [f"{name}=={version}" for name, version in system.packages.items()]
    return [*pinned, *(item for item in others if _name(item) not in system.packages), *tests]


def _name(requirement: str) -> str:
    """Return a requirement's package."""
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0]
