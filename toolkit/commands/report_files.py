"""The files of `toolkit report`: HTML for people, FOCUS and Parquet for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.report import Key, Report
    from toolkit.config import ClusterConfig
    from toolkit.finance.html_report import Subject
    from toolkit.finance.list_prices import ListPrices

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The files that were asked for; None: not this one."""

    html: Path | None
    focus: Path | None
    parquet: Path | None

    @property
    def any(self) -> bool:
        """Return whether any file was asked for."""
        return any(path is not None for path in (self.html, self.focus, self.parquet))

    def check(self) -> None:
        """Raise FocusFileInvalid before a report is made for nothing."""
        if self.focus is not None:
            from toolkit.finance import focus_file

            focus_file.check_name(self.focus)


@dataclass(frozen=True, slots=True)
class Making:
    """The needs of the files besides the report."""

    config_path: Path | None
    config: ClusterConfig
    before: Callable[[Window], Report]
    """Makes the report of an earlier period."""
    account_tags: Mapping[str, Mapping[str, str]]
    """Facts of accounts for FOCUS, such as their cost centres."""


def file_options(function: F) -> F:
    """Add `--html`, `--focus` and `--parquet`, as `html_path` and so on."""
    path = click.Path(dir_okay=False, writable=True, path_type=Path)
    html = click.option(
        "--html", "html_path", type=path, help="Write one self-contained HTML file as well."
    )
    focus = click.option(
        "--focus",
        "focus_path",
        type=path,
        help="Write FOCUS 1.2 of one month as well, to FILE.csv or FILE.parquet.",
        metavar="FILE",
    )
    parquet = click.option(
        "--parquet",
        "parquet_path",
        type=path,
        help="Write a Parquet file as well, one row a charge.",
    )
    return html(focus(parquet(function)))


def write(files: ReportFiles, report: Report, keys: Sequence[Key], making: Making) -> None:
    """Write the files. Raises FinanceError."""
    if files.parquet is not None:
        _write_parquet(files.parquet, report)
    if files.html is None and files.focus is None:
        return
    prices = list_prices(making.config_path, making.config)
    if files.html is not None:
        _write_html(files.html, _subject(report, prices, making), keys)
    if files.focus is not None:
        _write_focus(files.focus, report, prices, making.account_tags)


def list_prices(config_path: Path | None, config: ClusterConfig) -> ListPrices:
    """Return the on-demand prices of cluster.yaml and of the catalogues beside it."""
    from dataclasses import replace

    from toolkit.accounting.settings import price_book
    from toolkit.commands.options import find_config_file
    from toolkit.finance.list_prices import ListPrices
    from toolkit.prices import imports
    from toolkit.prices.catalogue import with_shapes_of

    imported = imports.read(imports.folder(find_config_file(config_path)))
    book = price_book(config, imported)
    return ListPrices(replace(book, catalogue=with_shapes_of(book.catalogue, imported)))


def period_before(window: Window) -> Window:
    """Return the period before.

    It is the month before a whole month, else as many seconds.
    """
    from dataclasses import replace

    since, until = (datetime.fromtimestamp(at, UTC) for at in (window.since, window.until))
    last = since - timedelta(days=1)
    is_month = since.day == 1 and until.day == 1 and timedelta(27) < until - since < timedelta(32)
    if is_month and not (window.since % 86_400 or window.until % 86_400):
        return replace(window, since=int(last.replace(day=1).timestamp()), until=window.since)
    return replace(window, since=2 * window.since - window.until, until=window.since)


def _subject(report: Report, prices: ListPrices, making: Making) -> Subject:
    """Return the report with its numbers, and those of the period before."""
    from dataclasses import replace

    from toolkit.errors import ToolkitError
    from toolkit.finance.html_report import Subject
    from toolkit.finance.measures import measures

    asked = report.window.since if report.asked_since is None else report.asked_since
    earlier = None
    try:
        earlier = making.before(period_before(replace(report.window, since=asked)))
    except ToolkitError as error:  # a report without trends is better than none
        click.echo(f"no trends: {error.message}", err=True)
    return Subject(
        report,
        measures(report, prices),
        making.config.targets,
        measures(earlier, prices) if earlier is not None and earlier.costs else None,
    )


def _write_html(path: Path, subject: Subject, keys: Sequence[Key]) -> None:
    from toolkit.finance import html_report
    from toolkit.finance.errors import FinanceError

    try:
        path.write_text(html_report.render(subject, keys), encoding="utf-8")
    except OSError as error:
        raise FinanceError(f"can't write {path}: {error.strerror}") from error
    click.echo(f"written: {path}", err=True)


def _write_parquet(path: Path, report: Report) -> None:
    from toolkit.accounting import parquet

    parquet.write(report, path)
    click.echo(f"written: {path}", err=True)


def _write_focus(
    path: Path,
    report: Report,
    prices: ListPrices,
    account_tags: Mapping[str, Mapping[str, str]],
) -> None:
    from toolkit.finance import focus_file
    from toolkit.finance.focus_rows import focus

    made = focus(report, prices, account_tags)
    focus_file.write(path, made.rows)
    click.echo(f"written: {path}, {len(made.rows)} rows", err=True)
    missing = made.unknown + sum(item.has_unknown_cost for item in report.set_aside)
    missing += len(report.jobs_without_cost)
    if missing:
        click.echo(f"not in it: {missing} charges, jobs or records of an unknown cost", err=True)
