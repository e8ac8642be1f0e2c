"""The output of `toolkit submit`: findings, and the calls of sbatch."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.lint import print_findings
from toolkit.lint.finding import Severity
from toolkit.output import plain, print_json
from toolkit.submit.checks import UNKNOWN_STOP

if TYPE_CHECKING:
    from toolkit.commands.submit_start import ChosenStart
    from toolkit.lint.finding import Finding
    from toolkit.submit.checks import StopEstimate
    from toolkit.submit.plan import Plan
    from toolkit.submit.staging import ChainedJob, Staging


@dataclass(frozen=True, slots=True)
class Checked:
    """A submission, with the findings about it."""

    submission: Plan
    staging: Staging
    start: ChosenStart | None
    stop: StopEstimate | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        """Return the findings that stand against a submission."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def report(
    checked: Checked, chain: tuple[ChainedJob, ...], *, submitted: bool, as_json: bool
) -> None:
    """Print the findings and the calls of sbatch."""
    if as_json:
        _print_json(checked, chain, submitted=submitted)
        return
    print_findings(Path(checked.submission.script), checked.findings)
    if checked.stop is None:
        click.echo(UNKNOWN_STOP)
    elif checked.stop.forecast.problem() is None:
        click.echo(plain(str(checked.stop)))
    for line in checked.start.lines() if checked.start else ():
        click.echo(plain(line))
    for addition in checked.submission.added:
        click.echo(plain(f"added {addition.option}: {addition.why}"))
    for item in chain:
        click.echo(plain(f"$ {shlex.join(item.argv)}"))
        if submitted:
            role = "" if item.role == "job" else f"{item.role}: "
            click.echo(f"{role}job {item.job}")


def _print_json(checked: Checked, chain: tuple[ChainedJob, ...], *, submitted: bool) -> None:
    stop, start = checked.stop, checked.start
    print_json(
        {
            "argv": checked.submission.call,
            "added": checked.submission.added,
            "findings": checked.findings,
            "job": next(item.job for item in chain if item.role == "job") if submitted else None,
            "chain": chain if len(chain) > 1 else (),
            "stop": {"seconds": stop.forecast.seconds, "source": stop.source} if stop else None,
            "start": start.as_json() if start else None,
        }
    )
