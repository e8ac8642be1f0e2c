"""Rules about the script's options for sbatch: requeueing, its log, its warning signal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolkit.lint.batch_script.rule import Hit, Rule
from toolkit.lint.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.lint.batch_script.script import Script

_SIGNAL: Final = re.compile(
    r"^(?P<flags>[RB]{1,2}:)?(?P<name>[A-Za-z0-9]+)(?:@(?P<seconds>\d+))?$", re.IGNORECASE
)

_DEFAULT_LEAD: Final = 60
"""Seconds before the time limit at which sbatch sends a signal, by default."""

_PROGRAM: Final = re.compile(
    r"^(?:\w+=\S*\s+)*(?:exec\s+|uv\s+run\s+|\S*/)?"
    r"(?:python[\d.]*|torchrun|accelerate|deepspeed|composer)\s"
)


def _hit(script: Script, option: str, message: str, fix: str) -> Hit:
    """Return a hit at the option's line.

    An option from outside wins over the script's lines, and must be corrected outside.
    """
    directive = script.directives.get(option)
    if directive and directive.source:
        return Hit(0, f"{directive.source}: {message}", fix.removeprefix("#SBATCH "))
    return Hit(directive.line if directive else 0, message, fix)


def _ignored(script: Script) -> Iterator[Hit]:
    for directive in script.ignored_directives:
        yield Hit(
            directive.line,
            f"--{directive.name} comes after the first command: sbatch ignores it",
            "move the line above the first command",
        )


def _no_requeue(script: Script) -> Iterator[Hit]:
    if "no-requeue" in script.directives:
        yield _hit(
            script,
            "no-requeue",
            "--no-requeue: an interruption ends the job, and a preemption cancels it without its"
            " grace time",
            "#SBATCH --requeue",
        )


def _requeue(script: Script) -> Iterator[Hit]:
    if not {"requeue", "no-requeue"} & script.directives.keys():
        yield Hit(
            0,
            "the script does not set --requeue: at a site with JobRequeue=0 the job ends with its"
            " first instance",
            "#SBATCH --requeue",
        )


def _open_mode(script: Script) -> Iterator[Hit]:
    mode = script.value("open-mode").lower()
    if not mode.startswith("a"):
        yield _hit(
            script,
            "open-mode",
            "each requeue empties the job's log, and with it the end of the last attempt",
            "#SBATCH --open-mode=append",
        )


def _signal_missing(script: Script) -> Iterator[Hit]:
    if script.launches and "signal" not in script.directives:
        yield Hit(
            0,
            "no signal comes before the time limit: the work since the last checkpoint is lost",
            "#SBATCH --signal=B:USR1@90, and a trap that tells the workers to save",
        )


def _signal_to_all(script: Script) -> Iterator[Hit]:
    signal = _signal(script)
    if signal is None or "B" in (signal["flags"] or "").upper():
        return
    if any(launch.has_agent or launch.kind == "deepspeed" for launch in script.launches):
        yield _hit(
            script,
            "signal",
            f"without B: every process of the job gets {signal['name'].upper()}. It kills the"
            " launcher, and the workers end before they have saved",
            f"#SBATCH --signal=B:{signal['name'].upper()}@{signal['seconds'] or 90}",
        )


def _signal_unheard(script: Script) -> Iterator[Hit]:
    signal = _signal(script)
    if signal is None or "B" in (signal["flags"] or "").upper() or script.sources_files:
        return
    # Sourced files may start steps, but can't be seen; only the script's own commands are judged.
    if not script.starts_steps and any(
        _PROGRAM.search(command.text) for command in script.commands
    ):
        yield _hit(
            script,
            "signal",
            f"without B: {signal['name'].upper()} goes to job steps, and srun starts none here: no"
            " process gets it",
            "start the program with srun, or set B: and a trap that passes the signal on",
        )


def _signal_untrapped(script: Script) -> Iterator[Hit]:
    signal = _signal(script)
    if signal is None or "B" not in (signal["flags"] or "").upper() or script.sources_files:
        return
    name = signal["name"].upper().removeprefix("SIG")
    traps = [command.text for command in script.commands if command.text.startswith("trap ")]
    if not any(re.search(rf"\b(?:SIG)?{name}\b", trap.upper()) for trap in traps):
        yield _hit(
            script,
            "signal",
            f"{name} goes to the batch script, which has no trap for it: the signal ends the script"
            " and the job",
            f"trap 'COMMAND THAT STOPS THE WORKERS' {name}",
        )


def _trap_waits(script: Script) -> Iterator[Hit]:
    signal = _signal(script)
    if signal is None or "B" not in (signal["flags"] or "").upper():
        return
    name = signal["name"].upper().removeprefix("SIG")
    has_trap = any(
        command.text.startswith("trap ") and name in command.text.upper()
        for command in script.commands
    )
    for launch in script.launches:
        if has_trap and not launch.in_background and not launch.inner:
            yield Hit(
                launch.line,
                f"bash runs the trap for {name} only after this command has ended",
                "start it with & and wait for it: srun … & pid=$!; wait $pid; wait $pid",
            )


def _signal_late(script: Script) -> Iterator[Hit]:
    signal = _signal(script)
    seconds = int((signal and signal["seconds"]) or _DEFAULT_LEAD)
    if signal and script.launches and seconds < script.stop_seconds:
        yield _hit(
            script,
            "signal",
            f"the signal comes {seconds} s before the end: too late to end a step and save",
            f"#SBATCH --signal=B:USR1@{script.stop_seconds + 30:.0f}: the time of a stop, and 30 s",
        )


def _pinned(script: Script) -> Iterator[Hit]:
    if script.value("nodelist"):
        yield _hit(
            script,
            "nodelist",
            "the job runs on these nodes only: after an interruption it waits until they are back",
            "remove --nodelist; request features instead (--constraint, --gres)",
        )


def _signal(script: Script) -> re.Match[str] | None:
    return _SIGNAL.match(script.value("signal"))


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    Rule("directive-ignored", _E, _ignored),
    Rule("no-requeue", _E, _no_requeue),
    Rule("requeue-unsaid", _W, _requeue),
    Rule("open-mode", _W, _open_mode),
    Rule("no-warning-signal", _W, _signal_missing),
    Rule("signal-to-all", _E, _signal_to_all),
    Rule("signal-unheard", _E, _signal_unheard),
    Rule("signal-untrapped", _E, _signal_untrapped),
    Rule("trap-in-vain", _E, _trap_waits),
    Rule("signal-late", _W, _signal_late),
    Rule("node-pinned", _W, _pinned),
)
