"""The recorded choices of a report's jobs: this computer's record, and MLflow's measured runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from toolkit.errors import ToolkitError
from toolkit.finance.recorded_choices import RecordedChoices
from toolkit.quote import planned_starts, predictions, right_sizes
from toolkit.quote.errors import QuoteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.report import Report
    from toolkit.config import ClusterConfig
    from toolkit.finance.list_prices import ListPrices
    from toolkit.quote.measured import MeasuredRun
    from toolkit.quote.predictions import Prediction
    from toolkit.quote.right_sizes import RightSize

_RUNS: Final = 500
"""The newest runs that are asked for, as `toolkit recommend` does."""


def choices(report: Report, config: ClusterConfig, prices: ListPrices) -> RecordedChoices:
    """Return what is recorded about a report's jobs.

    A report without these lines is better than none.
    """
    path = predictions.record_path(config.cluster)
    try:
        starts = planned_starts.read(path)
        changes = [item for item in predictions.read(path) if right_sizes.changes_size(item)]
    except QuoteError as error:
        click.echo(f"no later start, no right size: {error.message}", err=True)
        return RecordedChoices()
    found = RecordedChoices(starts, _right_sizes(report, config, prices, changes))
    return found.of(report.attempts) if found.later_starts or found.right_sizes else found


def _right_sizes(
    report: Report, config: ClusterConfig, prices: ListPrices, changes: Sequence[Prediction]
) -> tuple[RightSize, ...]:
    """Return the runs that followed a recommendation.

    The head is asked only where a recommended type was used later.
    """
    until = report.window.until
    recommended = {item.instance_type for item in changes if item.at < until}
    if not recommended or not any(
        item.instance_type in recommended for item in report.instances.values()
    ):
        return ()
    try:
        runs = _measured_runs(config)
    except ToolkitError as error:
        click.echo(f"no right size: {error.message}", err=True)
        return ()
    return right_sizes.right_sizes(changes, runs, prices.of_gpus)


def _measured_runs(config: ClusterConfig) -> list[MeasuredRun]:
    from toolkit.commands.controller import controller
    from toolkit.deploy import session
    from toolkit.quote.measured import measured_run
    from toolkit.runs import queries

    with session.connected(config) as clients:
        newest = queries.newest_runs(controller(clients, config), limit=_RUNS, running=False)
    return [item for run in newest if (item := measured_run(run))]
