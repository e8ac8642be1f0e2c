"""Issues the statements of a month: preliminary ones of an open month, fixed ones of a closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounting.attempt_names import Names
from toolkit.accounting.days import day_of
from toolkit.config.suggestions import suggestion
from toolkit.statements import uses
from toolkit.statements.build import Content, build
from toolkit.statements.documents import documents, file_name
from toolkit.statements.doubts import outside_grants
from toolkit.statements.errors import AccountUnknown
from toolkit.statements.model import Issue

if TYPE_CHECKING:
    from toolkit.accounting.periods import Period
    from toolkit.accounting.report import Report
    from toolkit.statements.cluster_periods import ClusterPeriods
    from toolkit.statements.model import PeriodStatements
    from toolkit.statements.settings import StatementSettings


def settings_of(cluster: ClusterPeriods, period: Period) -> StatementSettings:
    """Return the settings of a month: a closed one keeps its own."""
    copy = cluster.closed.get(period.name)
    return cluster.settings if copy is None else copy.facts.settings


def statements(
    cluster: ClusterPeriods, period: Period, names: Names | None = None
) -> PeriodStatements:
    """Return the statements of a month. Raises PeriodNotReady."""
    copy = cluster.closed.get(period.name)
    return statements_of(
        cluster.report(period),
        period,
        settings_of(cluster, period),
        _closed_at(cluster, period),
        names,
        has_prices=copy is None or copy.facts.has_prices,
    )


def statements_of(
    report: Report,
    period: Period,
    settings: StatementSettings,
    closed_at: int | None,
    names: Names | None = None,
    *,
    has_prices: bool = True,
) -> PeriodStatements:
    """Return the statements of a month's report."""
    part = report.period
    issue = Issue(
        cluster=settings.cluster,
        issuer=settings.issuer,
        sender=settings.sender,
        period=period.name,
        first=period.first.isoformat(),
        last=period.last.isoformat(),
        known_to=day_of(report.window.until - 1).isoformat(),
        made_at=report.made_at,
        closed_at=closed_at,
        revision=0 if part is None else part.revision,
        list_price=settings.list_price,
        rates_as_of="" if settings.rates is None else settings.rates.as_of,
        has_prices=has_prices,
    )
    corrections: dict[str, list[uses.Use]] = {}
    for item in () if part is None else part.corrections:
        corrections.setdefault(item.period, []).append(uses.use_of(item))
    content = Content(
        tuple(uses.uses_of(report)),
        {name: tuple(items) for name, items in corrections.items()},
        outside_grants(report, settings),
    )
    return build(content, settings, issue, names or Names(settings.names))


def files(cluster: ClusterPeriods, period: Period, names: Names | None = None) -> dict[str, bytes]:
    """Return the files of a month's statements.

    Those of a closed month are the issued ones, unless other names are wanted.
    """
    copy = cluster.closed.get(period.name)
    settings = settings_of(cluster, period)
    if copy is not None and (names is None or names == settings.names):
        return copy.documents()
    return documents(statements(cluster, period, names), settings)


def files_of_accounts(
    found: dict[str, bytes], made: PeriodStatements, wanted: tuple[str, ...]
) -> dict[str, bytes]:
    """Return the files of some accounts. Raises AccountUnknown."""
    known = [item.account.name for item in made.statements]
    for name in wanted:
        if name not in known:
            raise AccountUnknown(
                f"no account {name!r} has a statement of {made.issue.period}"
                f"{suggestion(name, known)}",
                next_step="leave --account away for the statements of all accounts",
            )
    chosen = {file_name(name) for name in wanted}
    return {name: body for name, body in found.items() if name.rpartition(".")[0] in chosen}


def _closed_at(cluster: ClusterPeriods, period: Period) -> int | None:
    copy = cluster.closed.get(period.name)
    return None if copy is None else copy.record.closed_at
