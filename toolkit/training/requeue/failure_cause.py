"""Find why an attempt ended: the evidence, the rules' form and the diagnosis."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from toolkit.training.attempt.job_log import LOG_BYTES
from toolkit.training.run_folder.attempts import Cause

Source = Literal["verdict", "state", "stop", "node", "log", "exit"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about an attempt that has ended. Empty fields are unknown."""

    code: int | None = None  # of the step; 128 and the signal's number if a signal killed it
    state: str = ""  # its state in sacct and scontrol
    stop: str = ""  # the cause in the stop request
    nodes: str = ""  # a line for each of its nodes: state and reason
    verdict: str = ""  # the workers' verdict: `outcome cause detail`
    log: str = ""

    def text(self, source: Source) -> str:
        """Return the text that rules about this source search."""
        match source:
            case "exit":
                return "" if self.code is None else str(self.code)
            case "node":
                return self.nodes
            case "state" | "stop" | "verdict" | "log":
                return str(getattr(self, source))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: if `pattern` is found in the source, `cause` is the cause."""

    name: str  # stable: the attempts file has it
    cause: Cause
    source: Source
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause, and how it was found."""

    cause: Cause
    rule: str
    version: int  # of the rules
    matched_line: str  # the line that the rule found

    @property
    def versioned_rule(self) -> str:
        """Return the rule as attempts.jsonl names it, such as `nccl@9`."""
        return f"{self.rule}@{self.version}"


def diagnose(evidence: Evidence, rules: Sequence[Rule], version: int) -> Diagnosis:
    """Return the diagnosis of the first rule that fits.

    An end that no rule explains is the script's own error.
    """
    for rule in rules:
        text = evidence.text(rule.source)
        if match := rule.pattern.search(text):
            return Diagnosis(rule.cause, rule.name, version, _line_at(text, match.start()))
    return Diagnosis(Cause.ERROR, "unexplained", version, f"exit code {evidence.code}")


def _line_at(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    return " ".join(line.split())[:200]


LINE = r"^(?:[^\S\n]*(?:\[[^\]\n]{1,60}\]|[\w.-]{0,60}\d)[^\S\n]*:)*[^\S\n]*"
"""A line's beginning, after the rank or node that torchrun --tee, srun --label and logging put
there.
"""

_TOOLKIT_LINES = re.compile(LINE + r"\[toolkit\] (?!cannot start: ).*\n?", re.MULTILINE)
_IGNORED_ERRORS = re.compile(
    r"^.*Exception ignored in.*$(?:\n(?!\S*(?:Error|Exception)\b).*$)*\n?.*$", re.MULTILINE
)


def tail(text: str) -> str:
    """Return the part of a log that rules search: its end.

    Errors that Python ignores while it exits are left out. So are the toolkit's lines: they report
    overcome trouble and earlier attempts.
    """
    return _TOOLKIT_LINES.sub("", _IGNORED_ERRORS.sub("", text[-LOG_BYTES:]))
