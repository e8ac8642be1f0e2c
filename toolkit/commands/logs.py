"""`toolkit logs`: what head and nodes wrote, also those that no longer exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.moments import since_option
from toolkit.commands.options import config_option, load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from toolkit.logs.log_group import Line, Stream


@click.command("logs")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@since_option("1h")
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines, until ^C.")
@click.option("--unit", metavar="UNIT", help="Lines of one unit, such as slurmd or kernel.")
@click.argument("target", metavar="NODE|INSTANCE|head")
def command(
    *,
    config_path: Path | None,
    as_json: bool,
    since: datetime,
    follow: bool,
    unit: str | None,
    target: str,
) -> None:
    """Print the logs of a node, an instance or the head node.

    They come from CloudWatch. A node's lines are those of all its instances, also of those that no
    longer exist.
    """
    import time

    from toolkit.deploy import names
    from toolkit.deploy.session import connected
    from toolkit.logs.errors import LogsOff
    from toolkit.logs.follow import follow as follow_lines
    from toolkit.logs.log_group import LogGroup
    from toolkit.logs.targets import find_streams

    config = load(config_path)
    if not config.logs.enabled:
        raise LogsOff(
            "cluster.yaml has logs.enabled: false, so logs stay on the machines",
            next_step="remove it, then `toolkit deploy`; or `toolkit login` and read /var/log",
        )
    begin = since.timestamp()
    with connected(config) as clients:
        group = LogGroup(clients.client("logs"), names.log_group(config))
        streams = find_streams(config, group, target)
        if follow:
            lines: Iterable[Line] = follow_lines(
                group, lambda: find_streams(config, group, target), begin, time.sleep
            )
        else:
            lines = group.lines(streams, begin)
        count = _print(lines, unit, as_json=as_json)
    if not count:
        _say_none(target, unit, since, streams)


def _print(lines: Iterable[Line], unit: str | None, *, as_json: bool) -> int:
    """Print the lines of a unit, or all; return their number."""
    count = 0
    for line in lines:
        if unit is None or line.unit == unit:
            click.echo(_json(line) if as_json else _text(line))
            count += 1
    return count


def _text(line: Line) -> str:
    from datetime import UTC, datetime

    from toolkit.output import plain

    at = datetime.fromtimestamp(line.at, UTC).isoformat(sep=" ", timespec="milliseconds")
    return plain(f"{at[:-6]} {line.node}/{line.instance} {line.unit}: {line.text}")


def _json(line: Line) -> str:
    import json
    from dataclasses import asdict

    return json.dumps({key: value for key, value in asdict(line).items() if key != "id"})


def _say_none(target: str, unit: str | None, since: datetime, streams: list[Stream]) -> None:
    """Tell a person on standard error when the last lines were."""
    from toolkit.explain.answer import format_time

    of_unit = f" of {unit}" if unit else ""
    text = f"{target} has no line{of_unit} since {format_time(since.timestamp())}"
    if last_at := streams[-1].last_at:
        text += f"; its last line is of {format_time(last_at)} ({streams[-1].name})"
    click.echo(text, err=True)
