"""Errors of bills.

* ToolkitError
  * BillError                     bill-failed
    - BillUnreadable              bill-unreadable
    - BillColumnsMissing          bill-columns-missing
    - BillRefused                 bill-refused
    - ReportUnreadable            report-unreadable
    - BillRecordDamaged           bill-record-damaged
"""

# ruff: noqa: N818  # the name states the fault; "Error" after it would state it twice

from __future__ import annotations

from toolkit.errors import ToolkitError


class BillError(ToolkitError):
    """A bill can't be reconciled."""

    reason = "bill-failed"


class BillUnreadable(BillError):
    """A file is no export of AWS's, or it is cut short."""

    reason = "bill-unreadable"


class BillColumnsMissing(BillError):
    """An export lacks columns that the match needs."""

    reason = "bill-columns-missing"


class BillRefused(BillError):
    """An export can be read, but not held to a report."""

    reason = "bill-refused"


class ReportUnreadable(BillError):
    """A file is no `toolkit report --json`, or is cut short."""

    reason = "report-unreadable"


class BillRecordDamaged(BillError):
    """A line of the record of bills is no record."""

    reason = "bill-record-damaged"
