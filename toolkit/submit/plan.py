"""Builds the sbatch call of a submission. Pure; the call is printed before it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.lint.batch_script import script as batch_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.lint.batch_script.script import Directive


@dataclass(frozen=True, slots=True)
class AddedOption:
    """An option that the toolkit adds because neither script nor caller sets it."""

    option: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned submission."""

    argv: tuple[str, ...]  # the sbatch call
    added: tuple[AddedOption, ...]
    script: str
    partition: str  # the requested one, empty if none
    account: str  # the requested one, empty if none
    container: str = ""  # the image that the toolkit's job scripts run their workers in
    outside_options: tuple[Directive, ...] = ()  # not from the script; the strongest last
    names: frozenset[str] = frozenset()  # of all options that script or caller set
    chdir: str = ""  # the folder that the job starts in, empty for the caller's

    @property
    def call(self) -> tuple[str, ...]:
        """Return the whole call.

        sbatch's own --container would put the batch script in the container as well.
        """
        if not self.container:
            return self.argv
        return ("env", f"TOOLKIT_CONTAINER={self.container}", *self.argv)


# An option to add, and the names of options that decide the same.
_DEFAULTS: Final = (
    (
        AddedOption("--requeue", "else a site's JobRequeue=0 ends the job with its first instance"),
        ("requeue", "no-requeue"),
    ),
    (AddedOption("--open-mode=append", "else each requeue empties the job's log"), ("open-mode",)),
)
# The options used here that sbatch also reads from SBATCH_ variables.
_VARIABLES: Final = (
    "account", "partition", "exclusive", "requeue", "no-requeue", "open-mode", "signal",
)  # fmt: skip
_COMMAND_LINE: Final = "on the command line"


def plan(
    options: Sequence[str],
    script: str,
    arguments: Sequence[str],
    *,
    text: str,
    environment: Mapping[str, str],
    container: str = "",
    more: Sequence[tuple[AddedOption, tuple[str, ...]]] = (),
    chosen: tuple[AddedOption, ...] = (),
) -> Plan:
    """Plan the sbatch call.

    `chosen` are options of the moment, such as a start that was chosen by its price.

    The script's own lines and the caller's options are never contradicted. Precedence
    is sbatch's own: the command line, the environment, the script. `more` has further options to
    add, each with the names that decide the same.
    """
    caller_options = batch_script.outside_directives(options, _COMMAND_LINE)
    outside_options = (*_environment_options(environment), *caller_options)
    parsed_script = batch_script.parse(text, outside_options=outside_options)
    directives = parsed_script.directives.keys()
    defaults = tuple(
        default for default, names in (*_DEFAULTS, *more) if directives.isdisjoint(names)
    )
    added = (*defaults, *chosen)
    added_options = tuple(default.option for default in added)
    added_directives = batch_script.outside_directives(added_options, _COMMAND_LINE)
    return Plan(
        argv=("sbatch", "--parsable", *added_options, *options, script, *arguments),
        added=added,
        script=script,
        partition=parsed_script.value("partition"),
        account=parsed_script.value("account"),
        container=container or environment.get("TOOLKIT_CONTAINER", ""),
        outside_options=(*outside_options, *added_directives),
        names=frozenset(directives),
        chdir=parsed_script.value("chdir"),
    )


def _environment_options(environment: Mapping[str, str]) -> Iterator[Directive]:
    for name in _VARIABLES:
        variable = f"SBATCH_{name.upper().replace('-', '_')}"
        if value := environment.get(variable):
            yield from batch_script.outside_directives([f"--{name}={value}"], f"in {variable}")
