"""`toolkit burst`: which jobs of racks may go to the cloud, today and by other rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.moments import period, since_option, until_option
from toolkit.commands.options import config_option, json_option, load_any

if TYPE_CHECKING:
    from datetime import datetime

    from toolkit.burst.facts import BurstFacts
    from toolkit.burst.simulate import Simulation


DEFAULT_AFTER = "10m,30m,2h"


def _thresholds(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[float, ...]:
    """Parse waits, separated by commas."""
    import re

    from toolkit.config.types import WAIT, seconds

    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(WAIT, word) for word in words):
        raise click.BadParameter(f"{text!r}: write waits such as {DEFAULT_AFTER}")
    return tuple(float(seconds(word)) for word in words)


@click.group("burst", cls=SuggestingGroup)
def command() -> None:
    """Show and rehearse which jobs of racks may go to the cloud."""


@command.command("status")
@config_option
@json_option
def status_command(*, config_path: Path | None, as_json: bool) -> None:
    """List the waiting jobs of racks with the decision about each.

    The head decides every minute. This is what it would decide now; nothing is changed.
    """
    from toolkit.burst import facts
    from toolkit.commands.controller import controller, head_programs
    from toolkit.deploy.session import connected
    from toolkit.output import print_json

    config = load_any(config_path)
    with connected(config) as clients:
        answer = facts.fetch(controller(clients, config), head_programs(config).as_user)
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


@command.command("simulate")
@config_option
@since_option("30d")
@until_option
@click.option(
    "--after",
    "thresholds",
    callback=_thresholds,
    default=DEFAULT_AFTER,
    show_default=True,
    metavar="WAITS",
    help="The thresholds to try, besides the rule's own.",
)
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result as a picture: an SVG file that needs nothing else.",
)
@json_option
def simulate_command(
    *,
    config_path: Path | None,
    since: datetime,
    until: datetime | None,
    thresholds: tuple[float, ...],
    plot_path: Path | None,
    as_json: bool,
) -> None:
    """Replay a past queue with other thresholds: waits, dollars, jobs.

    Racks are a model, first in first out with backfill. Its error against what really happened is
    told. With more than one rule, the name of the racks is added to the plot's file.
    """
    from datetime import UTC, datetime

    from toolkit.output import print_json

    window = period(since, until, datetime.now(UTC))
    simulations = _simulations(config_path, window, thresholds)
    if plot_path is not None:
        _write_plots(plot_path, simulations)
    if as_json:
        print_json({"simulations": simulations})
        return
    for simulation in simulations:
        _print_simulation(simulation)
    if not simulations:
        click.echo("no rule: cluster.yaml has no `burst`, or it is not applied yet")


def _simulations(
    config_path: Path | None, window: tuple[int, int], thresholds: tuple[float, ...]
) -> list[Simulation]:
    from dataclasses import replace

    from toolkit.burst import facts
    from toolkit.burst.history import past_queue, read_rows
    from toolkit.burst.replay import Scenario
    from toolkit.burst.simulate import simulate
    from toolkit.commands.controller import controller, head_programs
    from toolkit.deploy.session import connected

    config = load_any(config_path)
    with connected(config) as clients:
        head = controller(clients, config)
        answer = facts.fetch(head, head_programs(config).as_user)
        rows = read_rows(head, *window) if answer.governor.rules else []
    simulations = []
    for rule in answer.governor.rules.values():
        if not {rule.rack, rule.cloud} <= answer.partitions.keys():
            continue
        queue = past_queue(rows, rule.rack, rule.cloud, window[1])
        rack, cloud = answer.partitions[rule.rack], answer.partitions[rule.cloud]
        scenario = Scenario(rule, rack, cloud, answer.governor, *window)
        simulation = simulate(queue.jobs, scenario, (*thresholds, rule.after))
        simulations.append(replace(simulation, cancelled=queue.never_started))
    return simulations


def _write_plots(path: Path, simulations: list[Simulation]) -> None:
    from toolkit.burst.plot import svg
    from toolkit.output import plain

    for simulation in simulations:
        name = path if len(simulations) == 1 else path.with_stem(f"{path.stem}-{simulation.rack}")
        try:
            name.write_text(svg(simulation), encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"--plot {name}: {error.strerror}") from error
        click.echo(plain(f"wrote {name}"), err=True)


def _print_simulation(simulation: Simulation) -> None:
    from toolkit.burst.text import HEADERS, error_text, period_text, rows
    from toolkit.output import plain, table

    click.echo(plain(period_text(simulation)))
    click.echo(table(HEADERS, rows(simulation)))
    for item in simulation.outcomes:
        if item.never_started:
            click.echo(f"{item.never_started} jobs are too large for the racks of today")
            break
    click.echo(plain(error_text(simulation)))
    if simulation.cancelled:
        click.echo(f"{simulation.cancelled} jobs never started, and are left out")
