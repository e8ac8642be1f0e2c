"""A batch script for the rules: its directives, its commands, its launches."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.lint.batch_script import shell
from toolkit.training.slurm import sbatch_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolkit.lint.batch_script.shell import Command

DEFAULT_STOP_SECONDS: Final = 60.0
"""Assumed seconds for ending a step and saving, if nobody has measured them."""

_TORCHRUN: Final = re.compile(
    r"(?:^|[\s/;(\"'])torchrun(?=[\s\"'])|torch\.distributed\.(?:run|launch)\b"
)
_DEEPSPEED: Final = re.compile(r"(?:^|[\s/;(\"'&])deepspeed(?=\s+[-\w\"'$./])(?!\s*(?:==|>=))")
_ACCELERATE: Final = re.compile(
    r"(?:^|[\s/;(\"'])accelerate\s+launch\b|accelerate\.commands\.launch"
)
_COMPOSER: Final = re.compile(r"(?:^|[\s/;(\"'])composer\s+[-\w\"'$./]")
_PYTHON: Final = re.compile(r"\bsrun\b.*?\bpython[\d.]*\s(?P<rest>.*)", re.DOTALL)
_TRAINING_SCRIPT: Final = re.compile(
    r"(?:^|[\s/\"'])(?:\w*(?:train|finetun|fine_tun|_tune|sft|grpo|dpo)\w*|main|run_\w+)\.py\b",
    re.IGNORECASE,
)
_SOURCED: Final = re.compile(r"(?:source|\.)\s+[\"']?(?P<file>[^\s\"';&|]+)")
# Files with a known effect on a shell: they set no trap for a job.
_ENVIRONMENT: Final = re.compile(
    r"(?:conda\.sh|mamba\.sh|/activate|bashrc|profile|modules?(?:\.sh)?|\.env)$"
    r"|^activate$|bin/activate"
)
_NO_LAUNCH: Final = re.compile(
    r"^\s*(?:echo|printf|cat|which|command|pip|uv|apt\S*|conda|mkdir|cp|mv|rm|ls|cd|source|\.|alias"
    r"|git|wget|curl|enroot|docker\s+(?:build|pull)|module|if|elif|while|for|function|trap|kill)\b"
)
_OPPOSITE: Final = {"requeue": "no-requeue", "no-requeue": "requeue"}


@dataclass(frozen=True, slots=True)
class Directive:
    """An option for sbatch, by its long name."""

    name: str
    value: str
    line: int  # 0 if it is not in the script
    ignored: bool = False  # sbatch stopped reading options before it
    source: str = ""  # its place, if it is not in the script


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """A command that starts ranks."""

    line: int
    kind: str  # torchrun | deepspeed | accelerate | composer | python
    text: str  # with the script's own variables replaced by their values
    inner: bool  # in a here-document

    @property
    def in_background(self) -> bool:
        return self.text.rstrip().endswith("&") and not self.text.rstrip().endswith("&&")

    @property
    def has_agent(self) -> bool:
        """Return whether an elastic agent stands between Slurm and the workers."""
        return self.kind in ("torchrun", "accelerate")


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script."""

    text: str
    directives: Mapping[str, Directive]  # by name, without ignored ones
    ignored_directives: tuple[Directive, ...]
    commands: tuple[Command, ...]
    variables: Mapping[str, str]  # the script's own variables
    launches: tuple[RankLaunch, ...]
    stop_seconds: float  # seconds that its training needs to end a step and save
    node_disks: tuple[str, ...]  # folders on a node's own disk

    def value(self, name: str) -> str:
        directive = self.directives.get(name)
        return directive.value if directive else ""

    @property
    def several_nodes(self) -> bool:
        node_count = re.match(r"\d+(?:-(\d+))?", self.value("nodes"))
        if node_count:
            return int(node_count[1] or node_count[0]) > 1
        if self.value("ntasks") == "1":
            return False
        return bool(re.search(r"SLURM_(?:JOB_NUM_NODES|NNODES|JOB_NODELIST|NODEID)", self.text))

    @property
    def sources_files(self) -> bool:
        """Return whether it reads in code that can't be seen here."""
        return any(
            (match := _SOURCED.match(command.text)) and not _ENVIRONMENT.search(match["file"])
            for command in self.commands
        )

    @property
    def starts_steps(self) -> bool:
        """Return whether it starts a step, which Slurm sends signals to."""
        text = "\n".join(self.expand(command) for command in self.commands)
        return bool(re.search(r"(?:^|[\s;&|(\"'])(?:srun|mpirun|mpiexec)\b", text))

    def expand(self, command: Command) -> str:
        return shell.expand(command.text, self.variables)


def outside_directives(words: Sequence[str], source: str) -> tuple[Directive, ...]:
    """Return the options among words given to sbatch outside the script."""
    return tuple(
        Directive(name, value, 0, source=source) for name, value in sbatch_options.options(words)
    )


def parse(
    text: str,
    stop_seconds: float = DEFAULT_STOP_SECONDS,
    outside_options: Iterable[Directive] = (),
    node_disks: tuple[str, ...] = (),
) -> Script:
    """Parse a batch script. Never raises: unclear text gives no findings.

    Options in `outside_options` win over the script's own, and later ones over earlier ones.
    """
    commands, heredoc_lines = shell.split_commands(text)
    variables = shell.assigned_values(commands)
    lines = enumerate(text.splitlines(), start=1)
    script_lines = [(number, line) for number, line in lines if number not in heredoc_lines]
    directives, ignored = _directives(script_lines, commands[0].line if commands else 0)
    for directive in outside_options:
        _set_directive(directives, directive)
    return Script(
        text=text,
        directives=directives,
        ignored_directives=ignored,
        commands=commands,
        variables=variables,
        launches=tuple(_launches(commands, variables)),
        stop_seconds=stop_seconds,
        node_disks=node_disks,
    )


def _directives(
    lines: Iterable[tuple[int, str]], first_command_line: int
) -> tuple[dict[str, Directive], tuple[Directive, ...]]:
    directives: dict[str, Directive] = {}
    ignored = []
    for number, line in lines:
        if not line.startswith("#SBATCH"):
            continue
        for name, value in _options(line.removeprefix("#SBATCH")):
            is_late = bool(first_command_line) and number > first_command_line
            directive = Directive(name, value, number, ignored=is_late)
            if is_late:
                ignored.append(directive)
            else:
                _set_directive(directives, directive)
    return directives, tuple(ignored)


def _set_directive(directives: dict[str, Directive], directive: Directive) -> None:
    directives.pop(_OPPOSITE.get(directive.name, ""), None)
    directives[directive.name] = directive


def _options(rest: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(rest, comments=True)
    except ValueError:
        words = rest.split()
    return sbatch_options.options(words)


def _launches(commands: tuple[Command, ...], variables: Mapping[str, str]) -> Iterator[RankLaunch]:
    for command in commands:
        if _NO_LAUNCH.match(command.text) or shell.is_assignment(command.text):
            continue
        text = shell.expand(command.text, variables)
        if kind := _launch_kind(text):
            yield RankLaunch(command.line, kind, text, command.inner)


def _launch_kind(text: str) -> str:
    if _NO_LAUNCH.match(text):
        return ""
    if _TORCHRUN.search(text + " "):
        return "torchrun"
    if _ACCELERATE.search(text):
        return "accelerate"
    if _DEEPSPEED.search(text):
        return "deepspeed"
    if _COMPOSER.search(text):
        return "composer"
    python = _PYTHON.search(text)
    return "python" if python and _TRAINING_SCRIPT.search(python["rest"]) else ""
