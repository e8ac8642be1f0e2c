"""The files of `toolkit report`: HTML for people, FOCUS and Parquet for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolkit.accounting.report import Key, Report
    from toolkit.finance.facts import FinanceFacts
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
    """The needs of the files besides the report, made when they are asked for."""

    facts: Callable[[], FinanceFacts]
    account_tags: Callable[[], Mapping[str, Mapping[str, str]]]
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
        name_corrections(report)
    if files.html is None and files.focus is None:
        return
    facts = making.facts()
    if files.html is not None:
        _write_html(files.html, report, facts, keys)
    if files.focus is not None:
        _write_focus(files.focus, report, facts.prices, making.account_tags())
        name_corrections(report)


def name_corrections(report: Report) -> None:
    """Say which corrections charges in a file or table lack.

    Its rows are the month's own cost.
    """
    from toolkit.accounting.export import money

    part = report.period
    if part is not None and part.corrections:
        months = ", ".join(sorted({item.period for item in part.corrections}))
        amount = money(part.corrected_micro)
        click.echo(f"not in it: corrections of {months}, {amount} USD", err=True)


def _write_html(path: Path, report: Report, facts: FinanceFacts, keys: Sequence[Key]) -> None:
    from toolkit.finance import html_report
    from toolkit.finance.errors import FinanceError
    from toolkit.finance.measures import measures

    made = measures(report, facts.prices, facts.choices)
    subject = html_report.Subject(report, made, facts.targets, facts.before)
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
