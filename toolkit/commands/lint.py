"""`toolkit lint`: what in a batch script will lose work when its machines go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import json_option

if TYPE_CHECKING:
    from toolkit.lint.finding import Finding

FAILED = 1


@click.command("lint")
@json_option
@click.option("--strict", is_flag=True, help="Fail on warnings as well.")
@click.option(
    "--stop-seconds",
    type=click.FloatRange(min=1),
    help="What the training takes to end a step and save, where that is known.",
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
    """Report what in a batch script will lose work on spot machines, each with its fix.

    Exit code 0: nothing, or warnings only; 1: an error, or with --strict a warning; 2: no such
    file. `# toolkit-lint: ignore=SLUG` in the script silences a rule.
    """
    from toolkit.lint.batch_script.check import check
    from toolkit.lint.finding import Severity
    from toolkit.output import print_json

    found = {path: check(path.read_text(errors="replace"), stop_seconds) for path in scripts}
    every = [one for findings in found.values() for one in findings]
    errors = sum(one.severity is Severity.ERROR for one in every)
    if as_json:
        print_json({"scripts": [{"script": str(p), "findings": f} for p, f in found.items()]})
    else:
        for path, findings in found.items():
            show(path, findings)
        click.echo(f"{len(scripts)} scripts: {errors} errors, {len(every) - errors} warnings")
    return FAILED if errors or (strict and every) else 0


def show(path: Path, findings: tuple[Finding, ...]) -> None:
    """Findings as people read them: `file:line`, what is wrong, what to write instead."""
    from toolkit.output import plain

    for one in findings:
        where = f"{path}:{one.line}" if one.line else str(path)
        click.echo(plain(f"{where}: {one.severity}: {one.message} [{one.slug}]"))
        click.echo(plain(f"  fix: {one.fix}"))
