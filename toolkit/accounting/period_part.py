"""The accounting period of a report, as the report shows it.

`toolkit.statements` keeps periods and makes these values.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounting.money import usd
from toolkit.accounting.phrases import moment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction


@dataclass(frozen=True, slots=True)
class PeriodCorrection:
    """A later change of a closed period, which is booked in another one."""

    period: str  # the closed one, such as 2026-10
    account: str  # empty: the cluster's
    user: str
    project: str
    job: str
    component: str
    instance: str
    instance_type: str
    micro: int
    seconds: Fraction
    becomes_unknown: bool = False


@dataclass(frozen=True, slots=True)
class PeriodPart:
    """A month's state, and the corrections of earlier months that are booked in it."""

    name: str
    state: str  # open, review, closed or final
    revision: int = 0  # how many times it was closed
    closed_at: int | None = None
    corrections: tuple[PeriodCorrection, ...] = ()

    @property
    def corrected_micro(self) -> int:
        """Return the sum of its corrections."""
        return sum(item.micro for item in self.corrections)


def period_lines(part: PeriodPart | None, net: int) -> Sequence[str]:
    """Return the lines of a report whose own cost is `net`."""
    if part is None:
        return ()
    closed = "" if part.closed_at is None else f" on {moment(part.closed_at)} UTC"
    revision = f", revision {part.revision}" if part.revision > 1 else ""
    lines = [f"period {part.name}: {part.state}{closed}{revision}"]
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for item in part.corrections:
        sums[item.period, item.account] += item.micro
    lines += [
        f"correction of {period}, {account or 'cluster'}: {signed(micro)} USD"
        for (period, account), micro in sorted(sums.items())
    ]
    if part.corrections:
        lines.append(f"with corrections of earlier periods: {usd(net + part.corrected_micro)} USD")
    return lines


def signed(micro: int) -> str:
    """Return dollars with their sign."""
    return f"{'+' if micro >= 0 else ''}{usd(micro)}"
