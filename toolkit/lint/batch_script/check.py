"""Runs all rules over one script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolkit.lint.batch_script import command_rules, directive_rules, script
from toolkit.lint.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.lint.batch_script.script import Directive

RULES: Final = (*directive_rules.RULES, *command_rules.RULES)

_IGNORE: Final = re.compile(r"#\s*toolkit-lint:\s*ignore=([\w,\s-]+)")


def check_script(
    text: str,
    stop_seconds: float | None = None,
    outside_options: Iterable[Directive] = (),
    node_disks: tuple[str, ...] = (),
) -> tuple[Finding, ...]:
    """Return the findings, errors first, then by line.

    `# toolkit-lint: ignore=SLUG` in the script, with its reason beside it, silences a
    rule there.

    - `stop_seconds`: the seconds of a step and a save, if known.
    - `outside_options`: sbatch's options from outside the script.
    - `node_disks`: folders on a node's own disk, in addition to those of every cluster.
    """
    silenced_slugs = {
        word for findings in _IGNORE.finditer(text) for word in re.split(r"[,\s]+", findings[1])
    }
    parsed_script = script.parse(
        text, stop_seconds or script.DEFAULT_STOP_SECONDS, outside_options, node_disks
    )
    findings = [
        Finding(rule.slug, rule.severity, hit.line, hit.message, hit.fix)
        for rule in RULES
        if rule.slug not in silenced_slugs
        for hit in rule.find(parsed_script)
    ]
    return tuple(
        sorted(findings, key=lambda finding: (finding.severity is not Severity.ERROR, finding.line))
    )
