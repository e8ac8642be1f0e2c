"""`toolkit prices`: import AWS's price list, show the prices that a report takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit.accounting.phrases import day
from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import (
    config_file,
    config_option,
    dry_run_option,
    find_config_file,
    json_option,
    load_any,
)

if TYPE_CHECKING:
    from toolkit.accounting.price_listing import ListedPrice
    from toolkit.prices.price_list import Imported

_SHOWN = 5


@click.group("prices", cls=SuggestingGroup)
def command() -> None:
    """Import AWS's price list, show the prices that a report takes."""


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@config_option
@dry_run_option
@json_option
def import_command(*, file: Path, config_path: Path | None, dry_run: bool, as_json: bool) -> None:
    """Read AWS's price list of EC2 in one region: JSON or CSV.

    The prices of shared Linux instances go to `prices/REGION-DAY.json` beside cluster.yaml.
    """
    from toolkit.prices import imports, price_list

    imported = price_list.read(file)
    catalogue = imported.catalogue
    place = imports.folder(config_file(config_path))
    path = place / imports.file_name(catalogue)
    if not dry_run:
        source = f"AWS price list of EC2, Linux, {catalogue.region}: {file.name}"
        imports.write(catalogue, place, source)
    if as_json:
        from toolkit.output import print_json

        print_json(
            {
                "file": str(path),
                "written": not dry_run,
                "region": catalogue.region,
                "as_of": day(catalogue.as_of),
                "types": len(catalogue.prices),
                "left_out": imported.left_out,
            }
        )
        return
    _print_imported(imported)
    click.echo(f"{'would write' if dry_run else 'written'}: {path}")


def _print_imported(imported: Imported) -> None:
    from toolkit.output import plain

    catalogue = imported.catalogue
    as_of = day(catalogue.as_of)
    click.echo(f"{len(catalogue.prices)} types of {catalogue.region}, prices of {as_of}")
    for name, reason in list(imported.left_out.items())[:_SHOWN]:
        click.echo(plain(f"left out: {name}: {reason}"))
    if len(imported.left_out) > _SHOWN:
        click.echo(f"left out: {len(imported.left_out) - _SHOWN} more; --json lists them")


@command.command("show")
@config_option
@json_option
def show(*, config_path: Path | None, as_json: bool) -> None:
    """Print each price of cluster.yaml's instances, contracts, racks, storage and network.

    Spot prices are not among them: a report asks EC2 for those of its time.
    """
    from toolkit.accounting.price_listing import listing
    from toolkit.prices import imports

    config = load_any(config_path)
    now = int(datetime.now(UTC).timestamp())
    rows = listing(config, imports.read(imports.folder(find_config_file(config_path))), now)
    if as_json:
        from toolkit.output import print_json

        print_json([_json(row, now) for row in rows])
    else:
        _print(rows, now)


def _json(row: ListedPrice, now: int) -> dict[str, Any]:
    return {
        "what": row.what,
        "usd": _usd(row),
        "unit": row.unit,
        "source": row.source,
        "as_of": None if row.as_of is None else day(row.as_of),
        "age_days": row.age_days(now),
    }


def _print(rows: list[ListedPrice], now: int) -> None:
    from toolkit.output import table

    texts = [
        (
            row.what,
            _usd(row) or "unknown",
            row.unit,
            row.source,
            "" if row.as_of is None else day(row.as_of),
            row.age_days(now),
        )
        for row in rows
    ]
    click.echo(table(("what", "USD", "unit", "source", "as of", "days old"), texts))


def _usd(row: ListedPrice) -> str | None:
    return None if row.usd is None else f"{row.usd.normalize():f}"
