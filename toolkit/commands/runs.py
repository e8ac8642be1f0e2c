"""`toolkit runs`: lists, shows, compares and replays training runs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import config_option, dry_run_option, json_option, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.head_runner import Runner
    from toolkit.runs.queries import FoundRun


@click.group("runs", cls=SuggestingGroup)
def command() -> None:
    """List, show, compare and replay training runs.

    RUN is a job id, an MLflow run id, a run's name, or the run folder. Of several runs the newest
    counts.
    """


@contextmanager
def _head(config_path: Path | None) -> Iterator[Runner]:
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        yield Head(clients, config)


@command.command("list")
@config_option
@json_option
@click.option(
    "--limit", default=20, show_default=True, help="The most runs to list, the newest first."
)
@click.option("--running", is_flag=True, help="List only runs that MLflow has as running.")
def list_runs(*, config_path: Path | None, as_json: bool, limit: int, running: bool) -> None:
    """List the newest runs."""
    from toolkit.output import print_json, table
    from toolkit.runs import queries, text

    with _head(config_path) as head:
        runs = queries.newest_runs(head, limit=limit, running=running)
    if as_json:
        print_json(runs)
        return
    click.echo(
        table(text.LIST_HEADERS, [text.list_row(run) for run in runs]) if runs else "no runs"
    )


@command.command("show")
@config_option
@json_option
@click.argument("run", metavar="RUN")
def show(*, config_path: Path | None, as_json: bool, run: str) -> None:
    """Show a run: parameters, code, data, hardware, attempts, time and cost."""
    from toolkit.output import plain, print_json
    from toolkit.runs import queries, text

    with _head(config_path) as head:
        result = queries.find_run(head, run)
    if as_json:
        print_json(result)
        return
    click.echo(plain("\n".join(text.run_lines(result))))


@command.command("compare")
@config_option
@json_option
@click.argument("left", metavar="RUN")
@click.argument("right", metavar="RUN")
def compare_runs(*, config_path: Path | None, as_json: bool, left: str, right: str) -> None:
    """Show where two runs differ: parameters, code, packages, data, hardware, metrics."""
    from toolkit.output import print_json, table
    from toolkit.runs.compare import compare

    with _head(config_path) as head:
        comparison = compare(_mlflow_run(head, left), _mlflow_run(head, right))
    if as_json:
        print_json(comparison)
        return
    rows = [
        (difference.kind, difference.name, difference.left, difference.right)
        for difference in comparison.differences
    ]
    click.echo(table(("WHAT", "NAME", left, right), rows) if rows else "no differences")
    click.echo(f"the same: {comparison.same}")


@command.command("replay")
@config_option
@json_option
@dry_run_option
@click.option(
    "--anyway", is_flag=True, help="Submit although an input differs; the differences are printed."
)
@click.option(
    "--rebuild",
    metavar="FOLDER",
    help="Make the run's code (commit and diff) in this new folder on the cluster.",
)
@click.argument("run", metavar="RUN")
def replay(
    *,
    config_path: Path | None,
    as_json: bool,
    dry_run: bool,
    anyway: bool,
    rebuild: str | None,
    run: str,
) -> None:
    """Submit a run again with the same inputs, as its user.

    If an input is gone or has changed, replay names it and refuses (exit code 1).
    """
    from toolkit.output import plain, print_json
    from toolkit.runs import queries

    flags = [
        *(["--dry-run"] if dry_run else []),
        *(["--anyway"] if anyway else []),
        *([f"--rebuild={rebuild}"] if rebuild else []),
    ]
    with _head(config_path) as head:
        answer = queries.replay_run(head, queries.find_run(head, run), flags)
    if as_json:
        print_json(answer)
        return
    for reason in answer["differs"]:
        click.echo(plain(f"differs: {reason}"), err=True)
    for reason in answer.get("unknown", ()):
        click.echo(plain(f"not known: {reason}"), err=True)
    click.echo(plain(_replay_command(answer) if dry_run else f"submitted: job {answer['job_id']}"))


@command.command("settle")
@config_option
@json_option
@dry_run_option
def settle(*, config_path: Path | None, as_json: bool, dry_run: bool) -> None:
    """End MLflow runs whose jobs have ended.

    The head does the same by itself.
    """
    from toolkit.output import print_json, table
    from toolkit.runs import queries

    with _head(config_path) as head:
        ended_runs = queries.end_mlflow_runs(head, dry_run=dry_run)
    if as_json:
        print_json(ended_runs)
        return
    rows = [
        (ended_run["job"], ended_run["run_id"], ended_run["state"], ended_run["status"])
        for ended_run in ended_runs
    ]
    click.echo(
        table(("JOB", "RUN", "SLURM", "MLFLOW"), rows)
        if rows
        else "every MLflow run of an ended job has ended"
    )


def _mlflow_run(head: Runner, reference: str) -> Any:
    from toolkit.runs import queries
    from toolkit.runs.errors import RunNotFound

    result: FoundRun = queries.find_run(head, reference)
    if result.run is None:
        raise RunNotFound(f"{reference}: MLflow has no run of that folder to compare")
    return result.run


def _replay_command(answer: dict[str, Any]) -> str:
    import shlex

    session_variables = {"PATH", "HOME", "USER", "LANG"}
    environment = [f"{name}={value}" for name, value in answer["environment"].items()]
    exported = [pair for pair in environment if pair.partition("=")[0] not in session_variables]
    command_line = shlex.join(["env", *exported, *answer["argv"]])
    return f"cd {shlex.quote(answer['directory'])} && {command_line}"
