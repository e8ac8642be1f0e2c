"""Why an attempt ended, told from what can be seen of it: the causes, the evidence, the answer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from toolkit.training.attempt.job_log import LOG_BYTES
from toolkit.training.run_folder.attempts import Cause

Source = Literal["verdict", "state", "stop", "node", "log", "exit"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of an attempt that is over; empty where nothing is.

    `state`: Slurm's word for its end (sacct, scontrol). `stop`: what the stop request said.
    `nodes`: a line for each of its nodes, state and reason. `verdict`: `outcome cause detail` of
    the workers' own. `code`: of the step, 128 and the signal's number where it died of one.
    """

    code: int | None = None
    state: str = ""
    stop: str = ""
    nodes: str = ""
    verdict: str = ""
    log: str = ""

    def text(self, source: Source) -> str:
        """What a rule about this source looks at."""
        match source:
            case "exit":
                return "" if self.code is None else str(self.code)
            case "node":
                return self.nodes
            case "state" | "stop" | "verdict" | "log":
                return str(getattr(self, source))


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` is looked for in one source. `slug` is stable; the ledger names it."""

    slug: str
    cause: Cause
    source: Source
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The cause, the rule that told it, of which edition of the rules, and the line it saw."""

    cause: Cause
    rule: str
    version: int
    seen: str


def diagnose(evidence: Evidence, rules: Sequence[Rule], version: int) -> Diagnosis:
    """The first rule that fits. An end that nothing explains is the script's own error."""
    for rule in rules:
        text = evidence.text(rule.source)
        if found := rule.pattern.search(text):
            return Diagnosis(rule.cause, rule.slug, version, _line(text, found.start()))
    return Diagnosis(Cause.ERROR, "unexplained", version, f"exit code {evidence.code}")


def _line(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start : end if end >= 0 else len(text)]
    return " ".join(line.split())[:200]


LINE = r"^(?:[^\S\n]*(?:\[[^\]\n]{1,60}\]|[\w.-]{0,60}\d)[^\S\n]*:)*[^\S\n]*"
"""Where a line begins, after the rank or node that torchrun --tee, srun --label and logging put."""

_OURS = re.compile(LINE + r"\[toolkit\] (?!cannot start: ).*\n?", re.MULTILINE)
_IGNORED = re.compile(
    r"^.*Exception ignored in.*$(?:\n(?!\S*(?:Error|Exception)\b).*$)*\n?.*$", re.MULTILINE
)


def tail(text: str) -> str:
    """The part of a log to look at: its end, without what Python says while it is ending, and what
    the toolkit says: of trouble that was overcome, and of earlier attempts.
    """
    return _OURS.sub("", _IGNORED.sub("", text[-LOG_BYTES:]))
