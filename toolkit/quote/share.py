"""An account's share with a job and without, from `sshare`. Pure but for one call on the head.

Slurm counts usage in billing-seconds. A job's billing is milli-dollars an hour (slurm.conf's
TRESBillingWeights), so an hour of a dollar is 3.6 million.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from slurmplugins.head.read_commands import SHARES
from toolkit.errors import ToolkitError
from toolkit.quote.errors import UnknownAccount

if TYPE_CHECKING:
    from collections.abc import Collection
    from decimal import Decimal

    from toolkit.head_runner import Runner

ROOT: Final = "root"
MILLI: Final = 1000
HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class AccountShare:
    """An account's part of the recent usage, before and with the job. Parts are 0 to 1."""

    account: str
    share: float  # that cluster.yaml gives it
    used: float
    used_with_job: float | None
    """None: the job's price is unknown."""


def fetch(head: Runner, account: str, usd: Decimal | None) -> AccountShare | None:
    """Return the account's share; None if the head does not answer.

    `usd` is what the whole job costs, if known. Raises UnknownAccount.
    """
    if not account:
        return None
    try:
        output = head.run(SHARES, timeout=60)
    except ToolkitError:
        return None
    return parse(output, account, None if usd is None else float(usd) * MILLI * HOUR)


def parse(output: str, account: str, job_usage: float | None) -> AccountShare | None:
    """Read sshare's lines; None if they can't be read. Raises UnknownAccount."""
    rows = {}
    account = account.lower()  # as slurmdbd keeps it
    for line in output.splitlines():
        fields = line.split("|")
        if len(fields) == 4 and not fields[1].strip():  # noqa: PLR2004 - those of SHARES
            rows[fields[0].strip()] = fields[2:]
    if rows and account not in rows:
        raise _unknown(account, rows)
    try:
        total = float(rows[ROOT][1])
        share, used = float(rows[account][0]), float(rows[account][1])
    except (KeyError, ValueError):
        return None
    return AccountShare(
        account,
        share,
        _part(used, total),
        None if job_usage is None else _part(used + job_usage, total + job_usage),
    )


def _part(used: float, total: float) -> float:
    return used / total if total else 0.0


def _unknown(account: str, rows: Collection[str]) -> UnknownAccount:
    """Return the error of an account that Slurm does not have."""
    close = get_close_matches(account, rows, n=1)
    others = ", ".join(sorted(name for name in rows if name != ROOT))
    fix = f"did you mean {close[0]}?" if close else f"use one of {others}"
    return UnknownAccount(f"invalid account specified: {account}", next_step=fix)
