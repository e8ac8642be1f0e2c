"""The facts of finance's files besides the report: targets, list prices, the period before.

A closed month has those of its closing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from toolkit.accounting.settings import price_book
from toolkit.commands import report_period
from toolkit.commands.options import find_config_file
from toolkit.commands.report_choices import choices
from toolkit.errors import ToolkitError
from toolkit.finance import facts as finance_facts
from toolkit.finance.facts import FinanceFacts
from toolkit.finance.indicators import values
from toolkit.finance.list_prices import ListPrices
from toolkit.finance.measures import measures
from toolkit.finance.recorded_choices import NO_CHOICES
from toolkit.prices import imports
from toolkit.prices.catalogue import with_shapes_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction
    from pathlib import Path

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.report import Report
    from toolkit.commands.report_period import Wanted
    from toolkit.config import ClusterConfig


def list_prices(config_path: Path | None, config: ClusterConfig) -> ListPrices:
    """Return the on-demand prices of cluster.yaml and of the catalogues beside it."""
    imported = imports.read(imports.folder(find_config_file(config_path)))
    book = price_book(config, imported)
    return ListPrices(replace(book, catalogue=with_shapes_of(book.catalogue, imported)))


def facts_of(
    report: Report,
    *,
    config_path: Path | None,
    config: ClusterConfig,
    wanted: Wanted,
    now: datetime,
    with_trends: bool,
) -> FinanceFacts:
    """Return the facts of a report's files.

    A closed month has those of its closing.
    """
    kept = _kept(report, config, now)
    if kept is not None:
        return kept
    prices = list_prices(config_path, config)
    before = _before(report, config_path, config, wanted, now) if with_trends else None
    # The savings ledger alone shows them, and it is on the page that has trends.
    recorded = choices(report, config, prices) if with_trends else NO_CHOICES
    return FinanceFacts(config.targets, prices, before, recorded)


def to_keep(
    report: Report, *, config_path: Path | None, config: ClusterConfig, now: datetime
) -> dict[str, Any]:
    """Return what a month keeps when it is closed."""
    window = report.window
    wanted = report_period.Wanted((window.since, window.until))
    prices = list_prices(config_path, config)
    facts = FinanceFacts(
        config.targets,
        prices,
        _before(report, config_path, config, wanted, now),
        choices(report, config, prices),
    )
    types = {item.instance_type for item in report.instances.values()}
    return finance_facts.to_json(facts, types)


def period_before(window: Window) -> Window:
    """Return the period before.

    It is the month before a whole month, else as many seconds.
    """
    since, until = (datetime.fromtimestamp(at, UTC) for at in (window.since, window.until))
    last = since - timedelta(days=1)
    is_month = since.day == 1 and until.day == 1 and timedelta(27) < until - since < timedelta(32)
    if is_month and not (window.since % 86_400 or window.until % 86_400):
        return replace(window, since=int(last.replace(day=1).timestamp()), until=window.since)
    return replace(window, since=2 * window.since - window.until, until=window.since)


def _kept(report: Report, config: ClusterConfig, now: datetime) -> FinanceFacts | None:
    """Return what a closed month kept; None for another report."""
    copy = report_period.copy_of(config, report, now)
    return finance_facts.from_json(copy.facts.finance) if copy and copy.facts.finance else None


def _before(
    report: Report,
    config_path: Path | None,
    config: ClusterConfig,
    wanted: Wanted,
    now: datetime,
) -> Mapping[str, Fraction | None] | None:
    """Return the indicators of the period before; None without them."""
    asked = report.window.since if report.asked_since is None else report.asked_since
    window = period_before(replace(report.window, since=asked))
    try:
        earlier = report_period.before(
            window, config_path=config_path, config=config, wanted=wanted, now=now, report=report
        )
        kept = _kept(earlier, config, now)
    except ToolkitError as error:  # a report without trends is better than none
        click.echo(f"no trends: {error.message}", err=True)
        return None
    if not earlier.costs:
        return None
    prices = list_prices(config_path, config) if kept is None else kept.prices
    return values(measures(earlier, prices))
