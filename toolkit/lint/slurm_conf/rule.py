"""A rule about a slurm.conf, and its hits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.lint.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.lint.slurm_conf.parser import Line, SlurmConf
    from toolkit.render.versions import SlurmVersion

MAN: Final = "https://slurm.schedmd.com/slurm.conf.html"
POWER: Final = "https://slurm.schedmd.com/power_save.html"
_GPUS: Final = re.compile(r"\bgpu(?::[^:,(]+)?:(\d+)\b")
NEWS: Final = "https://github.com/SchedMD/slurm/tree/master/CHANGELOG"


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that a rule found."""

    setting: str  # the option's name
    message: str
    fix: str
    line: int = 0  # 0 where it is missing


@dataclass(frozen=True, slots=True)
class ConfRule:
    """A rule about a slurm.conf."""

    slug: str  # stable
    severity: Severity
    source: str  # URL of the documentation
    find: Callable[[SlurmConf, SlurmVersion], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class SettingFinding(Finding):
    """A finding about a setting."""

    setting: str
    source: str


def at_setting(conf: SlurmConf, name: str, message: str, fix: str) -> Hit:
    """Return a hit at the setting's line, 0 without one."""
    setting = conf.get(name)
    return Hit(name, message, fix, 0 if setting is None else setting.line)


def missing_word(conf: SlurmConf, name: str, word: str, message: str) -> Iterable[Hit]:
    """Yield a hit unless the list has the word."""
    if conf.parameter(name, word) is None:
        yield at_setting(conf, name, message, f"add {word} to {name}")


def gpus_of(node: Line) -> int:
    """Return the number of GPUs on a node's line."""
    return sum(map(int, _GPUS.findall(node.get("Gres"))))
