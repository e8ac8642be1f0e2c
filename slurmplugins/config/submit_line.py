"""The part of burst.json for the line at submit: nodes and partitions as slurm.conf has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import burst_part
from slurmplugins.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY: Final = "submit_line"
_ALL_PRIVATE: Final = ("accounts", "usage", "users")
"""For a burst.json of an earlier toolkit, which does not say what is private."""


@dataclass(frozen=True, slots=True)
class SubmitLine:
    """The facts of the cluster that price a job. Their values are JSON's."""

    default: str | None
    """The default partition."""
    partitions: Mapping[str, Mapping[str, Any]]
    """With the pools of each, the one of the lowest weight first."""
    nodes: Mapping[str, Mapping[str, Any]]
    """The shape of a pool's nodes."""
    default_accounts: Mapping[str, str] = field(default_factory=dict)
    """By user."""
    private_data: frozenset[str] = frozenset()
    """What users see of their own alone, in the words of slurm.conf's PrivateData."""


def load(path: Path) -> SubmitLine | None:
    """Read the part; None where the line is off. Raises ConfigError."""
    return parse(burst_part.read(path))


def parse(document: object) -> SubmitLine | None:
    """Return the part of a burst.json; None without one. Raises ConfigError."""
    part = burst_part.part_of(document, KEY)
    if part is None:
        return None
    try:
        default = part["default"]
        partitions = {str(name): dict(item) for name, item in part["partitions"].items()}
        for item in partitions.values():
            item["pools"] = [str(pool) for pool in item["pools"]]
        return SubmitLine(
            default=None if default is None else str(default),
            partitions=partitions,
            nodes={str(name): dict(item) for name, item in part["nodes"].items()},
            default_accounts={str(k): str(v) for k, v in part["default_accounts"].items()},
            private_data=frozenset(map(str, part.get("private_data", _ALL_PRIVATE))),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError((f"burst.json: {KEY}: {type(error).__name__}: {error}",)) from error
