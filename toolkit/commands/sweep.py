"""`toolkit sweep`: searches for the best parameters with a job array."""

from __future__ import annotations

import getpass
import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import config_option, dry_run_option, json_option, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@click.group("sweep", cls=SuggestingGroup)
def command() -> None:
    """Start a sweep, show its status, print its best trials."""


@contextmanager
def _head(config: ClusterConfig) -> Iterator[Runner]:
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    with connected(config) as clients:
        yield Head(clients, config)


def _name(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise click.BadParameter("letters, digits, . _ - and at most 100 of them")
    return text


name_argument = click.argument("name", callback=_name, metavar="NAME")


@command.command("start", context_settings={"ignore_unknown_options": True})
@config_option
@json_option
@dry_run_option
@click.option(
    "--trials",
    type=click.IntRange(1, 10_000),
    default=24,
    show_default=True,
    help="Number of trials.",
)
@click.option(
    "--at-once",
    type=click.IntRange(0),
    default=8,
    show_default=True,
    help="Most trials at one time; 0: all.",
)
@click.option("--as", "user", metavar="USER", help="Submit as this user  [default: you].")
@click.option(
    "--sbatch", "options", multiple=True, metavar="OPTION", help="One more option for sbatch."
)
@name_argument
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def start(
    *,
    config_path: Path | None,
    as_json: bool,
    dry_run: bool,
    trials: int,
    at_once: int,
    user: str | None,
    options: tuple[str, ...],
    name: str,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Submit a job array whose tasks are the trials of sweep NAME.

    SCRIPT is on the cluster and uses toolkit.training.sweeps. An existing sweep gets more trials.
    Example: toolkit sweep start digits /shared/jobscripts/sweep/train.py --epochs 30.
    """
    from toolkit.output import plain, print_json
    from toolkit.runs import sweeps

    config = load(config_path)
    request = sweeps.SweepStart(
        name=name,
        user=_user(config, user),
        trials=trials,
        at_once=at_once,
        options=options,
        script=script,
        arguments=arguments,
    )
    with _head(config) as head:
        submitted_array = sweeps.submit_sweep(head, request, dry_run=dry_run)
    if as_json:
        print_json(submitted_array)
    elif dry_run:
        click.echo(plain(shlex.join(submitted_array.argv)))
    else:
        click.echo(plain(f"sweep {name}: job array {submitted_array.job_id}, {trials} trials"))


@command.command("status")
@config_option
@json_option
@click.option("--settle", is_flag=True, help="Fail the trials whose tasks are gone.")
@dry_run_option
@name_argument
def status(
    *, config_path: Path | None, as_json: bool, settle: bool, dry_run: bool, name: str
) -> None:
    """Count the trials by state; name those whose tasks are gone."""
    from toolkit.output import print_json
    from toolkit.runs import sweeps

    with _head(load(config_path)) as head:
        sweep_status = sweeps.sweep_status(head, name, fail_missing=settle, dry_run=dry_run)
    if as_json:
        print_json(sweep_status)
        return
    counts = ", ".join(
        f"{count} {state}" for state, count in sorted(sweep_status["counts"].items())
    )
    click.echo(
        f"{sweep_status['trials']} trials, {sweep_status['direction']}: {counts or 'none yet'}"
    )
    _print_numbers("their tasks are gone (--settle fails them)", sweep_status["gone"])
    failed_text = "would be failed" if dry_run else "failed, as their tasks are gone"
    _print_numbers(failed_text, sweep_status["settled"])
    _print_trials(sweep_status["best"])


@command.command("best")
@config_option
@json_option
@click.option(
    "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Number of trials."
)
@name_argument
def best(*, config_path: Path | None, as_json: bool, count: int, name: str) -> None:
    """Print the best trials, the best first.

    Exit code 0 also when no trial is complete yet.
    """
    from toolkit.output import print_json
    from toolkit.runs import sweeps

    with _head(load(config_path)) as head:
        sweep_status = sweeps.sweep_status(head, name, count=count)
    if as_json:
        print_json(sweep_status["best"])
        return
    _print_trials(sweep_status["best"])


def _user(config: ClusterConfig, requested_user: str | None) -> str:
    """Return the user who submits: one of cluster.yaml."""
    user = requested_user or getpass.getuser()
    if user not in {entry.name for entry in config.users}:
        raise click.UsageError(f"{user} is no user of cluster.yaml; name one with --as USER")
    return user


def _print_numbers(label: str, numbers: list[int]) -> None:
    if numbers:
        click.echo(f"{label}: {', '.join(map(str, numbers))}")


def _print_trials(trials: list[dict[str, Any]]) -> None:
    from toolkit.output import table

    if not trials:
        click.echo("no trial is complete yet")
        return
    names = tuple(dict.fromkeys(name for trial in trials for name in trial["params"]))
    rows = [
        (
            trial["number"],
            f"{trial['value']:.6g}",
            trial["task"],
            *(trial["params"].get(param_name, "-") for param_name in names),
        )
        for trial in trials
    ]
    click.echo(table(("TRIAL", "VALUE", "TASK", *names), rows))
