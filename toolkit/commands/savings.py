"""`toolkit savings`: what was done to spend less, by month."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from toolkit.commands.moments import period, since_option, until_option
from toolkit.commands.options import config_option, json_option, load

if TYPE_CHECKING:
    from pathlib import Path


@click.command("savings")
@config_option
@since_option("90d")
@until_option
@json_option
def command(
    *, config_path: Path | None, since: datetime, until: datetime | None, as_json: bool
) -> None:
    """Print what measures saved, and what they cost, by month.

    Each line has what it cost too. The lines compare with different ways, which are stated, so
    they do not add up. A closed month's are what is known now, as standard error says.
    """
    from toolkit.commands.report_choices import choices
    from toolkit.commands.report_facts import list_prices
    from toolkit.commands.report_period import Wanted, live_lines, made
    from toolkit.finance import savings_text
    from toolkit.finance.charges_by_day import charges_by_day
    from toolkit.finance.outcomes import Outcomes
    from toolkit.finance.savings import ledger

    config = load(config_path)
    now = datetime.now(UTC)
    wanted = Wanted(period(since, until, now))
    with made(config_path, config, wanted, now) as (report, _):
        for line in live_lines(config, wanted):
            click.echo(line, err=True)
        prices = list_prices(config_path, config)
        savings = ledger(
            report,
            prices,
            list(charges_by_day(report)),
            Outcomes(report),
            choices(report, config, prices),
        )
    if as_json:
        from toolkit.output import print_json

        print_json(savings_text.as_json(report, savings))
    else:
        click.echo(savings_text.as_text(report, savings))
