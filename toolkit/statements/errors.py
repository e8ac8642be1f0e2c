"""Errors of periods and statements.

* ToolkitError
  * StatementsError               statements-failed
    - PeriodStateWrong            period-state-wrong
    - PeriodNotReady              period-not-ready
    - PeriodLogDamaged            period-log-damaged
    - PeriodCopyDamaged           period-copy-damaged
    - DoubtUnknown                doubt-unknown         2
    - AccountUnknown              account-unknown       2
"""
# ruff: noqa: N818  # the name states the fault; "Error" after it would state it twice

from __future__ import annotations

from toolkit.errors import ToolkitError


class StatementsError(ToolkitError):
    """A period or a statement can't be what was requested."""

    reason = "statements-failed"


class PeriodStateWrong(StatementsError):
    """A period's state does not allow the change."""

    reason = "period-state-wrong"


class PeriodNotReady(StatementsError):
    """Something is missing before a period can change its state."""

    reason = "period-not-ready"


class PeriodLogDamaged(StatementsError):
    """The log of periods was changed, or cut short in the middle."""

    reason = "period-log-damaged"


class PeriodCopyDamaged(StatementsError):
    """A file of a closed period is missing, or is not what was closed."""

    reason = "period-copy-damaged"


class DoubtUnknown(StatementsError):
    """A person approved a row that the period does not have."""

    reason = "doubt-unknown"
    exit_code = 2


class AccountUnknown(StatementsError):
    """A statement was requested of an account that nobody knows."""

    reason = "account-unknown"
    exit_code = 2
