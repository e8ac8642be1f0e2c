"""`toolkit submit`: check a batch script, say what sbatch is called with, call it."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, dry_run_option, json_option, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.lint.finding import Finding
    from toolkit.submit.checks import Stop
    from toolkit.submit.plan import Plan
    from toolkit.submit.slurm_client import SlurmSide


@click.command(
    "submit",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@config_option
@json_option
@dry_run_option
@click.option("--force", is_flag=True, help="Submit in spite of errors.")
@click.option("--user", help="On the head, as this user  [default: here, where sbatch is].")
@click.option("--checkpoint-gib", type=float, help="Size of a checkpoint, to predict a stop.")
@click.option("--write-gib-s", type=float, default=1.0, show_default=True, help="How fast it is.")
@click.option("--container", default="", metavar="IMAGE@sha256:…", help="Run the workers in it.")
@click.argument(
    "words", metavar="[SBATCH-OPTION=VALUE...] SCRIPT [ARG...]", nargs=-1, required=True
)
def command(
    *,
    config_path: Path | None,
    as_json: bool,
    dry_run: bool,
    force: bool,
    user: str | None,
    checkpoint_gib: float | None,
    write_gib_s: float,
    container: str,
    words: tuple[str, ...],
) -> int:
    """Check a batch script (toolkit lint, partition, account, Slurm's own test), then sbatch it.

    Options for sbatch go before the script, as --name=value. `--requeue` and `--open-mode=append`
    are added where neither the script nor you say otherwise; what is run is printed. What a stop
    would take of a spot notice is told from --checkpoint-gib, or else from what the last run like
    this one measured. `sbatch` alone works just as well. Exit code 0: submitted, or --dry-run found
    no error; 1: an error was found, or Slurm refused; 2: wrong usage.
    """
    from toolkit.lint.finding import Severity
    from toolkit.submit import checks, plan
    from toolkit.submit.errors import SubmitRefused

    options, script, arguments = _parts(words)
    stop = checks.Stop.of_size(checkpoint_gib, write_gib_s) if checkpoint_gib else None
    with _slurm(config_path, user) as slurm:
        text = slurm.text(script)
        wanted = plan.plan(
            options,
            script,
            arguments,
            text=text,
            environment=_environment(user),
            container=container,
        )
        who = user or getpass.getuser()
        if stop is None and (measured := slurm.measured(text, arguments)):
            stop = checks.Stop.of_run(measured)
        found = checks.findings(wanted, text, slurm, user=who, stop=stop)
        errors = [one for one in found if one.severity is Severity.ERROR]
        refused = bool(errors) and not force
        job = "" if dry_run or refused else slurm.submit(wanted.call)
    _report(wanted, found, stop, job, as_json=as_json)
    if refused and not dry_run:
        count = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
        raise SubmitRefused(
            f"not submitted: {count}", next_step="mend what is said above, or --force"
        )
    return 1 if refused else 0


def _parts(words: tuple[str, ...]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """sbatch's options, the script, the script's arguments."""
    at = next((at for at, word in enumerate(words) if not word.startswith("-")), None)
    if at is None:
        raise click.UsageError("no script: toolkit submit [--name=value ...] SCRIPT [ARG ...]")
    return words[:at], words[at], words[at + 1 :]


def _environment(user: str | None) -> dict[str, str]:
    """On the head it is not this shell's environment that sbatch sees."""
    return {} if user else dict(os.environ)


@contextmanager
def _slurm(config_path: Path | None, user: str | None) -> Iterator[SlurmSide]:
    from toolkit.submit.slurm_client import AsUser, Here, SlurmSide

    if user is None:
        if shutil.which("sbatch") is None:
            raise click.UsageError("no sbatch on this machine: give --user NAME, or log in first")
        yield SlurmSide(Here())
        return
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        yield SlurmSide(AsUser(Head(clients, config), user))


def _report(
    wanted: Plan, found: tuple[Finding, ...], stop: Stop | None, job: str, *, as_json: bool
) -> None:
    from pathlib import Path

    from toolkit.commands.lint import show
    from toolkit.output import plain, print_json
    from toolkit.submit import checks

    if as_json:
        said = {"argv": wanted.call, "added": wanted.added, "findings": found, "job": job or None}
        takes = {"seconds": stop.forecast.seconds, "source": stop.source} if stop else None
        print_json(said | {"stop": takes})
        return
    show(Path(wanted.script), found)
    if stop is None:
        click.echo(checks.UNKNOWN_STOP)
    elif stop.forecast.problem() is None:
        click.echo(plain(str(stop)))
    for one in wanted.added:
        click.echo(plain(f"added {one.option}: {one.why}"))
    click.echo(plain(f"$ {shlex.join(wanted.call)}"))
    if job:
        click.echo(f"job {job}")
