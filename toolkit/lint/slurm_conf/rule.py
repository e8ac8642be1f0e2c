"""What a trap in a slurm.conf is: a rule, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.lint.slurm_conf.parser import SlurmConf
    from toolkit.render.versions import SlurmVersion

MAN: Final = "https://slurm.schedmd.com/slurm.conf.html"
POWER: Final = "https://slurm.schedmd.com/power_save.html"
NEWS: Final = "https://github.com/SchedMD/slurm/tree/master/CHANGELOG"


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing wrong. `setting` is the option's name, `line` 0 where it is missing."""

    setting: str
    message: str
    fix: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Trap:
    """A rule. `slug` is stable, `source` says who knows."""

    slug: str
    severity: Severity
    source: str
    find: Callable[[SlurmConf, SlurmVersion], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class SettingFinding(Finding):
    """A hit of a trap, for people and editors."""

    setting: str
    source: str


def missing(conf: SlurmConf, name: str, word: str, message: str) -> Iterable[Hit]:
    """A hit unless the list has the word."""
    if conf.parameter(name, word) is None:
        found = conf.get(name)
        yield Hit(name, message, f"add {word} to {name}", 0 if found is None else found.line)


def line_of(conf: SlurmConf, name: str) -> int:
    """Where the setting is; 0 when nowhere."""
    found = conf.get(name)
    return 0 if found is None else found.line
