"""Uses: the charges of a report with the names that statements need. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.period_part import PeriodCorrection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolkit.accounting.charges import ChargePrices
    from toolkit.accounting.report import Report

Key = tuple[str, str, str, str, str, str, str]
"""Account, user, project, job, component, instance and its type."""


@dataclass(frozen=True, slots=True)
class Use:
    """An amount of one component, with whose it is."""

    account: str  # empty: no account caused it
    user: str
    project: str
    job: str
    component: str
    instance: str
    instance_type: str
    micro: int
    seconds: Fraction
    known: bool = True
    prices: ChargePrices | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        """Return all of its names."""
        return (
            self.account,
            self.user,
            self.project,
            self.job,
            self.component,
            self.instance,
            self.instance_type,
        )


def uses_of(report: Report) -> Iterator[Use]:
    """Yield the charges of a report as uses.

    They sum to its cost.
    """
    for charge in report.charges():
        attempt = None if charge.attempt is None else report.attempts[charge.attempt]
        instance = report.instances.get(charge.instance_id)  # a share belongs to none
        yield Use(
            account="" if attempt is None else attempt.account or "(no account)",
            user="" if attempt is None else attempt.user,
            project="" if attempt is None else attempt.project,
            job="" if attempt is None else attempt.job_id,
            component=charge.component.value,
            instance=charge.instance_id,
            instance_type="" if instance is None else instance.instance_type,
            micro=charge.micro,
            seconds=charge.seconds,
            known=charge.price_known,
            prices=charge.prices,
        )


def use_of(correction: PeriodCorrection) -> Use:
    """Return a correction as a use."""
    item = correction
    return Use(
        account=item.account,
        user=item.user,
        project=item.project,
        job=item.job,
        component=item.component,
        instance=item.instance,
        instance_type=item.instance_type,
        micro=item.micro,
        seconds=item.seconds,
        known=not item.becomes_unknown,
    )


@dataclass(slots=True)
class _Sum:
    micro: int = 0
    seconds: Fraction = Fraction(0)
    known: bool = True


def corrections(
    period: str, current: Iterable[Use], booked: Iterable[Use]
) -> tuple[PeriodCorrection, ...]:
    """Return what is known of a period, less what was booked.

    Booked are the uses of the closed period, and its corrections so far. An amount that nobody
    knows any more is a correction too.
    """
    now, before = _sums(current), _sums(booked)
    none = _Sum()
    found = []
    for key in sorted({*now, *before}):
        new, old = now.get(key, none), before.get(key, none)
        micro, seconds = new.micro - old.micro, new.seconds - old.seconds
        becomes_unknown = old.known and not new.known
        if micro or seconds or becomes_unknown:
            found.append(PeriodCorrection(period, *key, micro, seconds, becomes_unknown))
    return tuple(found)


def _sums(uses: Iterable[Use]) -> dict[Key, _Sum]:
    sums: dict[Key, _Sum] = defaultdict(_Sum)
    for use in uses:
        own = sums[use.key]
        own.micro += use.micro
        own.seconds += use.seconds
        own.known = own.known and use.known
    return sums
