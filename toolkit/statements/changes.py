"""Changes of a period's state, each by a person, and each in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolkit.accounting.days import day_of
from toolkit.accounting.period_part import PeriodPart
from toolkit.bill.history import bill_status
from toolkit.bill.record import DayStatus
from toolkit.output import counted
from toolkit.statements import copies, log
from toolkit.statements.cluster_periods import closed_part
from toolkit.statements.documents import documents
from toolkit.statements.errors import DoubtUnknown, PeriodNotReady
from toolkit.statements.issue import statements_of
from toolkit.statements.log import Change, LogEntry
from toolkit.statements.states import PeriodRecord, State, history, next_state
from toolkit.usage import closed_store
from toolkit.usage.closed_report import split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolkit.accounting.periods import Period
    from toolkit.accounting.report import Report
    from toolkit.statements.cluster_periods import ClusterPeriods
    from toolkit.statements.doubts import Doubt


def review(cluster: ClusterPeriods, period: Period, *, dry_run: bool = False) -> tuple[Doubt, ...]:
    """Begin the review of a month; returns its doubtful rows. Raises PeriodNotReady."""
    record = cluster.record(period)
    next_state(record, Change.REVIEW)
    if not period.is_over(cluster.now):
        raise PeriodNotReady(
            f"{period.name} is not over: its last day is {period.last}",
            next_step="review it from the day after on",
        )
    doubts = cluster.doubts(period)
    if record.state is not State.REVIEW and not dry_run:
        _append(cluster, _entry(cluster, period, Change.REVIEW))
    return doubts


def approve(
    cluster: ClusterPeriods,
    period: Period,
    ids: Sequence[str],
    reason: str,
    *,
    everything: bool = False,
    dry_run: bool = False,
) -> tuple[Doubt, ...]:
    """Approve doubtful rows; returns those that nobody had approved.

    Raises DoubtUnknown for an id that the month does not have.
    """
    record = cluster.record(period)
    next_state(record, Change.APPROVE)
    rows = {item.id: item for item in cluster.doubts(period)}
    for name in ids:
        if name not in rows:
            raise DoubtUnknown(
                f"{period.name} has no doubtful row {name}",
                next_step=f"`toolkit period review {period.name}` lists them",
            )
    chosen = rows if everything else dict.fromkeys(ids)
    wanted = tuple(rows[name] for name in chosen if name not in record.approved)
    if wanted and not dry_run:
        entry = _entry(cluster, period, Change.APPROVE, reason)
        texts = tuple((item.id, item.sentence) for item in wanted)
        _append(cluster, replace(entry, doubts=texts))
    return wanted


def check_ready(cluster: ClusterPeriods, period: Period) -> None:
    """Raise PeriodNotReady if something is missing before a month can be closed."""
    next_state(cluster.record(period), Change.CLOSE)
    for month in cluster.months():
        if month.name < period.name and month.name not in cluster.closed:
            raise PeriodNotReady(
                f"{month.name} is before {period.name}, and is not closed",
                next_step=f"close {month.name} first: corrections go from month to month",
            )
    changed_from = cluster.store.records().changed_from
    if changed_from is not None and changed_from < period.window.until:
        raise PeriodNotReady(
            f"the records say something new about {day_of(changed_from)}",
            next_step="`toolkit usage close` weighs its days again; then close the period",
        )
    rows = cluster.unapproved(period)
    if rows:
        raise PeriodNotReady(
            f"{period.name} has {counted(len(rows), 'doubtful row')} that nobody has approved,"
            f" such as {rows[0].id}: {rows[0].sentence}",
            next_step=f"`toolkit period approve {period.name} ID... --reason TEXT`",
        )


def no_facts(_report: Report) -> dict[str, Any]:
    """Return no facts for files of finance."""
    return {}


def close(
    cluster: ClusterPeriods,
    period: Period,
    *,
    finance: Callable[[Report], Mapping[str, Any]] = no_facts,
    dry_run: bool = False,
) -> Report:
    """Close a month: its figures are then fixed. Returns its report.

    `finance` returns the facts that files for finance will need of the report, as JSON. Raises
    PeriodNotReady. It may be killed at any time, and repeated.
    """
    check_ready(cluster, period)
    record = cluster.record(period)
    revision = record.revision + 1
    booked = tuple(item for own in cluster.pending(period).values() for item in own)
    part = PeriodPart(period.name, State.CLOSED.value, revision, cluster.now, booked)
    report = replace(cluster.live_report(period), period=part)
    if dry_run:
        return report
    facts = copies.PeriodFacts(
        settings=cluster.settings,
        policy=cluster.policy,
        bill_status=report.bill_status or bill_status(cluster.bills, period.first, period.last),
        booked=booked,
        seen=cluster.seen_by(period),
        finance=finance(report),
    )
    made = statements_of(report, period, cluster.settings, cluster.now)
    window = closed_part(period, cluster.days).window
    days = split(cluster.days, window, costs_always=False).days
    with cluster.store.changing() as temporary:
        _check_log(cluster, period, Change.CLOSE)
        if closed_store.read(cluster.store) != cluster.days:
            raise PeriodNotReady(
                f"the closed days were changed while {period.name} was read",
                next_step="run this again",
            )
        content = (facts, documents(made, cluster.settings))
        digest = copies.write(cluster.store, temporary, record, days, content)
        entry = _entry(cluster, period, Change.CLOSE)
        _write(cluster, replace(entry, revision=revision, digest=digest))
    return report


def reopen(cluster: ClusterPeriods, period: Period, reason: str, *, dry_run: bool = False) -> None:
    """Open a month again; its copy stays as an earlier revision."""
    next_state(cluster.record(period), Change.REOPEN)
    if not dry_run:
        _append(cluster, _entry(cluster, period, Change.REOPEN, reason))


def finalize(
    cluster: ClusterPeriods, period: Period, *, without_bill: str = "", dry_run: bool = False
) -> None:
    """Make a closed month final, as AWS's bill of it is.

    `without_bill` is a person's reason to do it all the same. Raises PeriodNotReady.
    """
    next_state(cluster.record(period), Change.FINALIZE)
    days = [day_of(day) for day in cluster.closed[period.name].days.days]
    missing = [day for day in days if cluster.bills.status(day) is not DayStatus.FINAL]
    if missing and not without_bill:
        raise PeriodNotReady(
            f"{counted(len(missing), 'day')} of {period.name} are not final against AWS's bill,"
            f" the first is {missing[0]}",
            next_step="`toolkit reconcile-bill` with the month's closed bill, or"
            " `--without-bill TEXT`",
        )
    if not dry_run:
        _append(cluster, _entry(cluster, period, Change.FINALIZE, without_bill))


def _entry(cluster: ClusterPeriods, period: Period, change: Change, reason: str = "") -> LogEntry:
    return LogEntry(change, period.name, cluster.now, cluster.who, reason)


def _append(cluster: ClusterPeriods, entry: LogEntry) -> None:
    with cluster.store.changing():
        _write(cluster, entry)


def _check_log(cluster: ClusterPeriods, period: Period, change: Change) -> None:
    """Raise PeriodNotReady if somebody else has changed a month meanwhile.

    Raises PeriodStateWrong if the month's state does not allow the change any more.
    """
    if _known_before(cluster, period.name, change) != cluster.records:
        raise PeriodNotReady(
            f"somebody changed a month while {period.name} was read",
            next_step="run this again",
        )


def _write(cluster: ClusterPeriods, entry: LogEntry) -> None:
    """Add a line to the log.

    Raises PeriodStateWrong if the period's state does not allow it any more.
    """
    _known_before(cluster, entry.period, entry.change)
    log.append(cluster.log_file, entry)


def _known_before(cluster: ClusterPeriods, name: str, change: Change) -> dict[str, PeriodRecord]:
    """Return the months of the log, which allows a month's change.

    Raises PeriodStateWrong.
    """
    known = history(log.read(cluster.log_file))
    next_state(known.get(name, PeriodRecord(name)), change)
    return known
