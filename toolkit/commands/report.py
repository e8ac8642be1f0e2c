"""`toolkit report`: the cost of the cluster, by account, user or job."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.moments import moment
from toolkit.commands.options import config_option, json_option, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.report import Key, Report
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.head_runner import Runner


def _keys(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[Key, ...]:
    """Parse names of groups, separated by commas."""
    from toolkit.accounting.report import Key

    try:
        return tuple(dict.fromkeys(Key(part.strip()) for part in text.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give some of {', '.join(Key)}") from error


@click.command("report")
@config_option
@click.option(
    "--since",
    callback=moment,
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Start: 2026-11-01, 2026-11-01T12:30 (UTC), or a time before now: 90m, 36h, 7d.",
)
@click.option("--until", callback=moment, metavar="TIME", help="End  [default: now].")
@click.option(
    "--by",
    "keys",
    callback=_keys,
    default="account,user",
    show_default=True,
    metavar="KEYS",
    help="One row for each account, user or job, or a list of these.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line a charge.")
@click.option(
    "--html",
    "html_path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write one self-contained HTML file as well.",
)
@click.option(
    "--record-mlflow",
    is_flag=True,
    help="Tag MLflow runs with the cost of jobs that are whole in the report.",
)
def command(
    *,
    config_path: Path | None,
    since: datetime,
    until: datetime | None,
    keys: tuple[Key, ...],
    as_json: bool,
    as_csv: bool,
    html_path: Path | None,
    record_mlflow: bool,
) -> None:
    """Print the cost of the cluster, by account, user or job.

    Slurm's accounting gives the attempts, EC2 the lifetimes of instances and the price of each
    second. The lines sum to the instance cost exactly.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    now = datetime.now(UTC)
    window = _window(since, until or now, now)
    with connected(config) as clients:
        head = Head(clients, config)
        report = _collect(config, clients, head, window, int(now.timestamp()))
        try:
            if html_path is not None:
                _write_html(html_path, report, keys)
            if record_mlflow:
                _record(head, report)
        finally:
            # A tracking server that is down, or a full disk, must not cost the report.
            _print(report, keys, as_json=as_json, as_csv=as_csv)


def _window(since: datetime, until: datetime, now: datetime) -> Window:
    """Return the window, which ends now at the latest.

    The future costs nothing yet.
    """
    from toolkit.accounting.allocation import Window

    until = min(until, now)
    if since >= until:
        raise click.UsageError(f"--since {since:%Y-%m-%dT%H:%M} is not before --until or now")
    return Window(int(since.timestamp()), int(until.timestamp()))


def _collect(
    config: ClusterConfig, clients: Clients, runner: Runner, window: Window, now: int
) -> Report:
    from slurmplugins.model.hostlist import expand
    from slurmplugins.slurm.sacct import new_token
    from toolkit.accounting.allocation import Policy
    from toolkit.accounting.collect import Sources, collect
    from toolkit.deploy import names

    sources = Sources(
        cluster=config.cluster,
        region=config.aws.region,
        bucket=names.bucket(config, clients.account),
        records_bucket=names.backup_bucket(config, clients.account),
        ec2=clients.client("ec2"),
        s3=clients.client("s3"),
        runner=runner,
        static_nodes=frozenset(
            node
            for name, pool in config.pools.items()
            if pool.static
            for node in expand(config.nodes(name, pool.static))
        ),
    )
    return collect(sources, window, now, new_token(), Policy())


def _write_html(path: Path, report: Report, keys: Sequence[Key]) -> None:
    from toolkit.accounting import html
    from toolkit.accounting.errors import AccountingError

    try:
        path.write_text(html.render(report, keys), encoding="utf-8")
    except OSError as error:
        raise AccountingError(f"can't write {path}: {error.strerror}") from error
    click.echo(f"written: {path}", err=True)


def _record(runner: Runner, report: Report) -> None:
    from toolkit.accounting import mlflow
    from toolkit.runs import queries

    ended_runs = queries.end_mlflow_runs(runner)
    if ended_runs:
        click.echo(f"MLflow: ended as their jobs did: {len(ended_runs)}", err=True)
    recorded = mlflow.record(runner, report)
    click.echo(
        f"MLflow: cost recorded on {recorded.runs} run{'s' if recorded.runs != 1 else ''}", err=True
    )
    if recorded.partial_jobs:
        click.echo(
            f"MLflow: only a part of the cost of {recorded.partial_jobs} jobs is in this report, "
            "so it is not recorded. Begin the report before their first attempt, by --since.",
            err=True,
        )


def _print(report: Report, keys: Sequence[Key], *, as_json: bool, as_csv: bool) -> None:
    from toolkit.accounting import export

    if as_json:
        from toolkit.output import print_json

        print_json(export.as_json(report, keys))
    elif as_csv:
        click.echo(export.as_csv(report), nl=False)
    else:
        from rich.console import Console

        from toolkit.accounting import terminal

        console = Console(highlight=False, soft_wrap=False)
        console.print(terminal.render(report, keys))
