"""Errors of a report.

* ToolkitError
  * AccountingError               accounting-failed
    - SacctError                  sacct-unreadable
    - LedgerError                 ledger-unreadable
    - PeriodInvalid               period-invalid        2
"""
# ruff: noqa: N818  # the name states the fault; "Error" after it would state it twice

from __future__ import annotations

from toolkit.errors import ToolkitError


class AccountingError(ToolkitError):
    """No report can be made."""

    reason = "accounting-failed"


class SacctError(AccountingError):
    """sacct lacks a field that the report needs, or its output is damaged."""

    reason = "sacct-unreadable"


class LedgerError(AccountingError):
    """An object of the instance ledger is no record; a report sets it aside."""

    reason = "ledger-unreadable"


class PeriodInvalid(AccountingError):
    """A text names no period, or one in the future."""

    reason = "period-invalid"
    exit_code = 2
