"""`toolkit burst`: which waiting jobs of racks may go to the cloud, and what else would have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import config_option, json_option, load

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.burst.facts import BurstFacts


@click.group("burst", cls=SuggestingGroup)
def command() -> None:
    """Show and rehearse which waiting jobs of racks may go to the cloud."""


@command.command("status")
@config_option
@json_option
def status_command(*, config_path: Path | None, as_json: bool) -> None:
    """List the waiting jobs of racks with the decision about each.

    The head decides every minute. This is what it would decide now; nothing is changed.
    """
    from toolkit.burst import facts
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.output import print_json

    config = load(config_path)
    with connected(config) as clients:
        answer = facts.fetch(Head(clients, config))
    if as_json:
        print_json(
            {
                "at": answer.at,
                "decisions": answer.jobs,
                "accounts": answer.accounts,
                "problems": answer.problems,
            }
        )
    else:
        _print_status(answer)


def _print_status(answer: BurstFacts) -> None:
    from toolkit.output import plain, table

    if not answer.governor.rules:
        click.echo("no rule: cluster.yaml has no `burst`")
        return
    for partition, problem in sorted(answer.problems.items()):
        click.echo(plain(f"{partition} launches nothing now: {problem}"))
    rows = [
        (
            item.label,
            item.account,
            item.rack,
            "-" if item.usd is None else f"{item.usd:.2f}",
            item.text,
        )
        for item in answer.jobs
    ]
    if rows:
        click.echo(table(("JOB", "ACCOUNT", "RACKS", "USD AT MOST", "DECISION"), rows))
    else:
        click.echo("no job waits for racks")
    budgets = [
        (
            item.account,
            rack,
            f"{usd:.2f}",
            f"{item.usd_spent:.2f}",
            f"{item.usd_committed:.2f}",
            f"{usd - item.usd_spent - item.usd_committed:.2f}",
        )
        for item in answer.accounts
        for rack, usd in sorted(item.usd_per_month.items())
    ]
    headers = ("ACCOUNT", "RACKS", "USD A MONTH", "SPENT", "COMMITTED", "LEFT")
    click.echo("\n" + table(headers, budgets))
