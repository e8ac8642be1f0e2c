"""site.json: what a controller that we joined must know before anything of ours is read.

It exists on a site's controller alone. Without it, every node that slurmctld names is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BadName, ConfigError
from slurmplugins.model import json_input
from slurmplugins.model.hostlist import MAX_EXPANSION, expand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAMS: Final = ("resume", "suspend", "resume-fail")
MAX_POOLS: Final = 100
"""Pools of a cluster.yaml, each with as many nodes as a hostlist may have."""


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """Our nodes on this controller, and the site's own power-save programs."""

    nodes: frozenset[str]
    programs: Mapping[str, str] = field(default_factory=dict)
    """The site's program by ours: `resume`, `suspend`, `resume-fail`. Absent: it has none."""
    slurm_bin: str = paths.SLURM_BIN
    credentials_file: str | None = None
    """The site's file with AWS credentials. None: the AWS SDK's own."""


def load(path: Path | None = None) -> SiteConfig | None:
    """Read the file; None where there is none. Raises ConfigError."""
    path = path or paths.SITE
    try:
        data = json_input.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError((f"{path}: can't be read: {error}",)) from error
    return parse(data, str(path))


def parse(data: object, source: str = "site.json") -> SiteConfig:
    """Turn decoded JSON into a SiteConfig. Raises ConfigError with every problem."""
    if not isinstance(data, dict):
        raise ConfigError((f"{source}: expected an object",))
    problems: list[str] = []
    nodes: tuple[str, ...] = ()
    try:
        nodes = expand(str(data.get("nodes") or ""), limit=MAX_POOLS * MAX_EXPANSION)
    except BadName as error:
        problems.append(f"{source}: nodes: {error.message}")
    if not nodes:
        problems.append(f"{source}: nodes: expected a hostlist, found {data.get('nodes')!r}")
    listed = data.get("programs", {})
    programs = listed if isinstance(listed, dict) else {}
    problems += [
        f"{source}: programs.{name}: expected an absolute path, found {program!r}"
        for name, program in programs.items()
        if name not in PROGRAMS or not isinstance(program, str) or not program.startswith("/")
    ]
    if problems:
        raise ConfigError(tuple(problems))
    slurm_bin = str(data.get("slurm_bin") or paths.SLURM_BIN)
    credentials_file = str(data.get("credentials_file") or "") or None
    return SiteConfig(frozenset(nodes), dict(programs), slurm_bin, credentials_file)
