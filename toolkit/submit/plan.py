"""The sbatch call that a submission comes to: pure, and printed before it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.lint import script as batch_script
from toolkit.training import sbatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.lint.script import Script


@dataclass(frozen=True, slots=True)
class Added:
    """An option that the toolkit gives because nobody else did."""

    option: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`argv` is sbatch's call. `partition` and `account`: what was asked for, empty if nothing.
    `container`: the image that the toolkit's job scripts run their workers in.
    """

    argv: tuple[str, ...]
    added: tuple[Added, ...]
    script: str
    partition: str
    account: str
    container: str = ""

    @property
    def call(self) -> tuple[str, ...]:
        """The whole call. sbatch's own --container would put the batch script in there as well."""
        return (
            ("env", f"TOOLKIT_CONTAINER={self.container}", *self.argv)
            if self.container
            else self.argv
        )


# An option, the names that say something about it, and the environment's words for it.
_DEFAULTS: Final = (
    (
        Added("--requeue", "or a site's JobRequeue=0 ends the job with its first machine"),
        ("requeue", "no-requeue"),
        ("SBATCH_REQUEUE", "SBATCH_NO_REQUEUE"),
    ),
    (
        Added("--open-mode=append", "or each requeue empties the job's log"),
        ("open-mode",),
        ("SBATCH_OPEN_MODE",),
    ),
)


def plan(
    options: Sequence[str],
    script: str,
    arguments: Sequence[str],
    *,
    text: str,
    environment: Mapping[str, str],
    container: str = "",
) -> Plan:
    """What is to be run. The script's own lines and the caller's options are never contradicted."""
    read = batch_script.parse(text)
    said = dict(_named(options))
    added = tuple(
        default
        for default, names, variables in _DEFAULTS
        if not any(name in read.directives or name in said for name in names)
        and not any(environment.get(variable) for variable in variables)
    )
    argv = ("sbatch", "--parsable", *(one.option for one in added), *options, script, *arguments)
    return Plan(
        argv=argv,
        added=added,
        script=script,
        partition=_asked("partition", "SBATCH_PARTITION", said, read, environment),
        account=_asked("account", "SBATCH_ACCOUNT", said, read, environment),
        container=container,
    )


def _asked(
    name: str,
    variable: str,
    said: Mapping[str, str],
    read: Script,
    environment: Mapping[str, str],
) -> str:
    """sbatch's own order: the command line, the environment, the script."""
    return said.get(name) or environment.get(variable) or read.value(name)


def _named(options: Sequence[str]) -> list[tuple[str, str]]:
    return list(sbatch.options(options))
