"""Errors of the files for finance.

* ToolkitError
  * FinanceError                  finance-failed
    - FocusPeriodInvalid          focus-period-invalid    2
    - FocusFileInvalid            focus-file-invalid      2
"""
# ruff: noqa: N818  # the name states the fault; "Error" after it would state it twice

from __future__ import annotations

from toolkit.errors import ToolkitError


class FinanceError(ToolkitError):
    """A file can't be written."""

    reason = "finance-failed"


class FocusPeriodInvalid(FinanceError):
    """The report's time is not within one month, which is FOCUS's billing period."""

    reason = "focus-period-invalid"
    exit_code = 2


class FocusFileInvalid(FinanceError):
    """The name of a FOCUS file ends neither with .csv nor with .parquet."""

    reason = "focus-file-invalid"
    exit_code = 2
