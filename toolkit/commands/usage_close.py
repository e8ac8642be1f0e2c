"""`toolkit usage close`: read the cluster's new records, and close the days that they cover."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, dry_run_option, json_option, load_any

if TYPE_CHECKING:
    from pathlib import Path


def _day(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """Parse a UTC day; return its first second."""
    if text is None:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no day; write 2026-11-01") from error
    return int(day.timestamp())


@click.command("close")
@config_option
@click.option(
    "--through", callback=_day, metavar="DAY", help="The last day to close  [default: all known]."
)
@click.option(
    "--again-from",
    callback=_day,
    metavar="DAY",
    help="Weigh the closed days from this one on again, by today's cluster.yaml.",
)
@click.option("--all-pages", is_flag=True, help="List all keys in the bucket, not the late ones.")
@dry_run_option
@json_option
def close_command(
    *,
    config_path: Path | None,
    through: int | None,
    again_from: int | None,
    all_pages: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the charges of the cluster's past days, once and for good.

    New records are read from the bucket first. A day is closed when it is over and they reach
    beyond it. What later records say of a closed day is written as a correction, which reports
    show. `toolkit report` reads closed days from here.
    """
    from toolkit.commands.controller import controller
    from toolkit.commands.own_store import key_of_profile
    from toolkit.commands.report_sources import sources_of
    from toolkit.commands.usage_closing import ClosingRun
    from toolkit.deploy.session import connected
    from toolkit.usage.cluster_store import ClusterStore, cluster_folder

    config = load_any(config_path)
    store = ClusterStore(cluster_folder(config.cluster))
    with connected(config) as clients:
        sources = sources_of(config_path, config, clients, controller(clients, config))
        profile = (key_of_profile(config), clients.account)
        closing = ClosingRun(store, sources, config.aws.region, dry_run=dry_run, profile=profile)
        closing.run(through, again_from, whole=all_pages)
        closing.show(as_json=as_json)
