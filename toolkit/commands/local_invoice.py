"""`toolkit local invoice`: what AWS would have billed for the local cloud's resources."""

# ruff: noqa: PLR0917 - click passes options by name

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.local_options import state_option
from toolkit.commands.moments import period, since_option, until_option
from toolkit.commands.options import check_format, json_option
from toolkit.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.local.billing.invoice import Invoice, LineItem


@click.command()
@since_option("30d")
@until_option
@click.option(
    "--granularity",
    type=click.Choice(["hourly", "daily"]),
    default="hourly",
    show_default=True,
    help="The longest time of a line item.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row a line item.")
@click.option(
    "--cur",
    "cur_path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the line items as CSV in the schema of CUR 2.0 as well.",
)
@state_option
@json_option
def invoice(
    since: datetime,
    until: datetime | None,
    granularity: str,
    as_csv: bool,
    cur_path: Path | None,
    state: Path | None,
    as_json: bool,
) -> None:
    """Bill the instances, volumes and file systems by AWS's rules.

    The sums come from the local cloud's own events and prices, not from the toolkit's records.
    """
    check_format(as_json=as_json, as_csv=as_csv)
    now = datetime.now(UTC)
    made = _make(state, *period(since, until, now), granularity)
    if cur_path is not None:
        _write_cur(cur_path, made)
    _print(made, as_json=as_json, as_csv=as_csv)


def _make(state: Path | None, since: int, until: int, granularity: str) -> Invoice:
    from toolkit.local.billing.invoice import Granularity, make
    from toolkit.local.billing.rates import LocalRates
    from toolkit.local.billing.usage_log import UsageLog
    from toolkit.local.options import state_dir

    events = UsageLog(state_dir(state)).read()
    longest = Granularity[granularity.upper()]
    return make(events, LocalRates(), since=since, until=until, granularity=longest)


def _write_cur(path: Path, made: Invoice) -> None:
    from toolkit.local.billing import cur

    try:
        path.write_text(cur.as_csv(made), encoding="utf-8")
    except OSError as error:
        raise LocalError(f"can't write {path}: {error.strerror}") from error
    click.echo(f"written: {path}", err=True)


def _print(made: Invoice, *, as_json: bool, as_csv: bool) -> None:
    from toolkit.output import print_json, table

    if as_json:
        print_json(
            {
                "since": made.since,
                "until": made.until,
                "total": f"{made.total:f}",
                "resources": {key: f"{usd:f}" for key, usd in made.by_resource().items()},
                "lines": [_as_json(line) for line in made.lines],
            }
        )
    elif as_csv:
        click.echo(_as_csv(made), nl=False)
    else:
        columns = ["resource", "type", "market", "seconds", "USD"]
        click.echo(table(columns, [_row(lines) for lines in made.lines_by_resource()]))
        click.echo(f"total: {made.total:.2f} USD")


def _row(lines: Sequence[LineItem]) -> list[str]:
    first = lines[0]
    usd = sum((line.cost for line in lines), Decimal(0))
    seconds = sum(line.seconds for line in lines)
    return [first.resource_id, first.type, first.market or "-", str(seconds), f"{usd:.6f}"]


def _as_json(line: LineItem) -> dict[str, Any]:
    return {
        "resource": line.resource_id,
        "kind": line.kind.value,
        "type": line.type,
        "market": line.market,
        "region": line.region,
        "zone": line.zone,
        "start": line.start,
        "end": line.end,
        "quantity": f"{line.quantity:f}",
        "rate": f"{line.rate:f}",
        "cost": f"{line.cost:f}",
        "tags": dict(line.tags),
    }


def _as_csv(made: Invoice) -> str:
    import csv
    import io

    rows = [{**_as_json(line), "tags": ""} for line in made.lines]
    text = io.StringIO()
    writer = csv.DictWriter(text, _NAMES, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_NAMES = (
    "resource", "kind", "type", "market", "region", "zone", "start", "end", "quantity", "rate",
    "cost",
)  # fmt: skip
