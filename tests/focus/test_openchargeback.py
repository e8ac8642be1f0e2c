"""OpenChargeback on our FOCUS files: `make focus`."""

import pytest

from tests.focus.openchargeback import imported
from tests.unit.finance.busy_month import busy_month
from tests.unit.finance.samples import a_month, list_prices
from toolkit.accounting.money import usd
from toolkit.accounting.report import Key
from toolkit.finance import focus_file
from toolkit.finance.focus_rows import focus


@pytest.mark.parametrize("make", [a_month, busy_month])
def test_each_account_has_in_openchargeback_what_it_has_in_the_report(make, tmp_path):
    report = make()
    path = tmp_path / "focus.csv"
    focus_file.write(path, focus(report, list_prices()).rows)
    groups = report.groups([Key.ACCOUNT])
    sums = {group.key_values[0]: usd(group.total) for group in groups if group.has_jobs}
    assert len(sums) >= 3
    assert imported(path, tmp_path / "openchargeback") == sums
