"""`toolkit lint`: finds the lines of a batch script that lose work at an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import json_option

if TYPE_CHECKING:
    from toolkit.lint.finding import Finding

EXIT_FAILED = 1


@click.command("lint")
@json_option
@click.option("--strict", is_flag=True, help="Fail on warnings as well.")
@click.option(
    "--stop-seconds",
    type=click.FloatRange(min=1),
    help="Seconds that the training takes to end a step and save, if known.",
)
@click.argument(
    "scripts",
    metavar="SCRIPT...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
def command(
    *, as_json: bool, strict: bool, stop_seconds: float | None, scripts: tuple[Path, ...]
) -> int:
    """Report the lines of a batch script that lose work on spot.

    Each finding has its fix. Exit code 0: nothing, or warnings only; 1: an error, or with --strict
    a warning; 2: no such file. `# toolkit-lint: ignore=SLUG` in the script silences a rule.
    """
    from toolkit.lint.batch_script.check import check_script
    from toolkit.lint.finding import Severity
    from toolkit.output import print_json

    findings_by_script = {
        path: check_script(path.read_text(errors="replace"), stop_seconds) for path in scripts
    }
    all_findings = [finding for findings in findings_by_script.values() for finding in findings]
    errors = sum(finding.severity is Severity.ERROR for finding in all_findings)
    if as_json:
        print_json(
            {"scripts": [{"script": str(p), "findings": f} for p, f in findings_by_script.items()]}
        )
    else:
        for path, findings in findings_by_script.items():
            print_findings(path, findings)
        click.echo(
            f"{len(scripts)} scripts: {errors} errors, {len(all_findings) - errors} warnings"
        )
    return EXIT_FAILED if errors or (strict and all_findings) else 0


def print_findings(path: Path, findings: tuple[Finding, ...]) -> None:
    """Print findings: `file:line`, the problem, and the fix."""
    from toolkit.output import plain

    for finding in findings:
        location = f"{path}:{finding.line}" if finding.line else str(path)
        click.echo(plain(f"{location}: {finding.severity}: {finding.message} [{finding.slug}]"))
        click.echo(plain(f"  fix: {finding.fix}"))
