"""Errors of a report.

* ToolkitError
  * AccountingError               accounting-failed
    - SacctError                  sacct-unreadable
    - LedgerError                 ledger-unreadable
"""

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
