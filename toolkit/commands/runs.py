"""`toolkit runs`: what was trained, with what, for how much; and the same again."""

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
    from toolkit.runs.queries import Found


@click.group("runs", cls=SuggestingGroup)
def command() -> None:
    """List, show, compare and replay training runs.

    RUN is a job's number, an MLflow run id, a run's name, or the run's folder; of several runs the
    newest counts.
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
@click.option("--limit", default=20, show_default=True, help="How many, the newest first.")
@click.option("--running", is_flag=True, help="Only those that MLflow has as running.")
def list_runs(*, config_path: Path | None, as_json: bool, limit: int, running: bool) -> None:
    """List the newest runs."""
    from toolkit.output import print_json, table
    from toolkit.runs import queries, text

    with _head(config_path) as head:
        runs = queries.newest(head, limit=limit, running=running)
    if as_json:
        print_json(runs)
        return
    click.echo(table(text.LIST, [text.line(run) for run in runs]) if runs else "no runs")


@command.command("show")
@config_option
@json_option
@click.argument("run", metavar="RUN")
def show(*, config_path: Path | None, as_json: bool, run: str) -> None:
    """Show a run: parameters, code, data, hardware, attempts, where time and money went."""
    from toolkit.output import plain, print_json
    from toolkit.runs import queries, text

    with _head(config_path) as head:
        found = queries.find(head, run)
    if as_json:
        print_json(found)
        return
    click.echo(plain("\n".join(text.page(found))))


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
        compared = compare(_recorded(head, left), _recorded(head, right))
    if as_json:
        print_json(compared)
        return
    rows = [(one.kind, one.name, one.left, one.right) for one in compared.differences]
    click.echo(table(("WHAT", "NAME", left, right), rows) if rows else "no differences")
    click.echo(f"the same: {compared.same}")


@command.command("replay")
@config_option
@json_option
@dry_run_option
@click.option("--anyway", is_flag=True, help="Submit although something differs; it is printed.")
@click.option(
    "--rebuild",
    metavar="FOLDER",
    help="Make the code of then (commit and diff) in this new folder on the cluster.",
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
    """Submit a run again as it was, as the user whose run it was.

    Refuses, and says why, when something is gone or not what it was. Exit code 1: refused.
    """
    from toolkit.output import plain, print_json
    from toolkit.runs import queries

    flags = [
        *(["--dry-run"] if dry_run else []),
        *(["--anyway"] if anyway else []),
        *([f"--rebuild={rebuild}"] if rebuild else []),
    ]
    with _head(config_path) as head:
        answer = queries.replay(head, queries.find(head, run), flags)
    if as_json:
        print_json(answer)
        return
    for reason in answer["differs"]:
        click.echo(plain(f"differs: {reason}"), err=True)
    for reason in answer.get("unknown", ()):
        click.echo(plain(f"not known: {reason}"), err=True)
    click.echo(plain(_call(answer) if dry_run else f"submitted: job {answer['job_id']}"))


@command.command("settle")
@config_option
@json_option
@dry_run_option
def settle(*, config_path: Path | None, as_json: bool, dry_run: bool) -> None:
    """Give MLflow runs whose jobs are over the end these had; the head does so by itself."""
    from toolkit.output import print_json, table
    from toolkit.runs import queries

    with _head(config_path) as head:
        done = queries.settle(head, dry_run=dry_run)
    if as_json:
        print_json(done)
        return
    rows = [(one["job"], one["run_id"], one["state"], one["status"]) for one in done]
    click.echo(table(("JOB", "RUN", "SLURM", "MLFLOW"), rows) if rows else "nothing to settle")


def _recorded(head: Runner, reference: str) -> Any:
    from toolkit.runs import queries
    from toolkit.runs.errors import RunNotFound

    found: Found = queries.find(head, reference)
    if found.run is None:
        raise RunNotFound(f"{reference}: MLflow has no run of that folder to compare")
    return found.run


def _call(answer: dict[str, Any]) -> str:
    import shlex

    own = {"PATH", "HOME", "USER", "LANG"}
    environment = [f"{name}={value}" for name, value in answer["environment"].items()]
    kept = [pair for pair in environment if pair.partition("=")[0] not in own]
    return f"cd {shlex.quote(answer['directory'])} && {shlex.join(['env', *kept, *answer['argv']])}"
