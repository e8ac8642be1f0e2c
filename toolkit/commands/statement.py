"""`toolkit statement`: a page and a mail for each account of a month, and journal.csv."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, dry_run_option, find_config_file, load
from toolkit.commands.period_options import month_of, names_option, periods_of, utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.statements.model import PeriodStatements


@click.command("statement")
@config_option
@click.option(
    "--period",
    "text",
    metavar="MONTH",
    default="last-month",
    show_default=True,
    help="A month such as 2026-11.",
)
@click.option(
    "--account", "accounts", multiple=True, metavar="NAME", help="One account. May be repeated."
)
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write to. Without it, the statements are printed as text.",
)
@names_option(None)
@click.option("--json", "as_json", is_flag=True, help="Print the statements as JSON.")
@click.option(
    "--install-timer",
    is_flag=True,
    help="Make a systemd user timer that writes last month's statements to --out.",
)
@dry_run_option
def command(
    *,
    config_path: Path | None,
    text: str,
    accounts: tuple[str, ...],
    folder: Path | None,
    names: str | None,
    as_json: bool,
    install_timer: bool,
    dry_run: bool,
) -> None:
    """Write a month's statements and its accounting journal.

    Those of a closed month are the files that were issued when it was closed. Those of an open
    month say that they are preliminary. Neither AWS nor the head is asked.
    """
    from toolkit.accounting.attempt_names import Names
    from toolkit.statements import issue

    if install_timer:
        _install_timer(config_path, folder, dry_run=dry_run)
        return
    now = utc_now()
    cluster, period = periods_of(load(config_path), now), month_of(text, now)
    chosen = None if names is None else Names(names)
    made = issue.statements(cluster, period, chosen)
    found = issue.files(cluster, period, chosen)
    if accounts:
        found = issue.files_of_accounts(found, made, accounts)
    if as_json:
        _print_json(made, accounts)
    if folder is not None:
        _write(folder, found, dry_run=dry_run)
    elif not as_json:
        _print_text(made, accounts)


def _print_json(made: PeriodStatements, accounts: tuple[str, ...]) -> None:
    from toolkit.output import print_json
    from toolkit.statements.statement_json import statement_json

    chosen = [item for item in made.statements if not accounts or item.account.name in accounts]
    print_json([statement_json(item) for item in chosen])


def _print_text(made: PeriodStatements, accounts: tuple[str, ...]) -> None:
    from toolkit.statements import render

    chosen = [item for item in made.statements if not accounts or item.account.name in accounts]
    rule = f"\n{'=' * 72}\n\n"
    click.echo(rule.join(render.text(item) for item in chosen), nl=False)


def _write(folder: Path, found: Mapping[str, bytes], *, dry_run: bool) -> None:
    from slurmplugins.system.files import write_atomically
    from toolkit.statements.errors import StatementsError

    for name, content in sorted(found.items()):
        path = folder / name
        if not dry_run:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content, mode=0o600)
            except OSError as error:
                raise StatementsError(f"can't write {path}: {error.strerror}") from error
        click.echo(f"{'would write' if dry_run else 'written'}: {path}", err=True)


def _install_timer(config_path: Path | None, folder: Path | None, *, dry_run: bool) -> None:
    from toolkit.statements import timer

    if folder is None:
        raise click.UsageError("--install-timer needs --out: the folder of the statements")
    units = timer.units(find_config_file(config_path), folder)
    place = timer.user_folder()
    for name, content in units.items():
        if not dry_run:
            timer.write(place / name, content)
        click.echo(f"{'would write' if dry_run else 'written'}: {place / name}")
    if dry_run:
        click.echo("\n".join(units.values()))
    click.echo(f"start it: systemctl --user daemon-reload && {timer.START}")
