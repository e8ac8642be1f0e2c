"""Golden tests of the files for finance, of a month of three accounts.

`TOOLKIT_GOLDEN=write` accepts a change; read the diff.
"""

import json
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from tests.unit.finance.samples import DECEMBER, NOVEMBER, a_month, html_of, list_prices
from toolkit.finance import focus_file, savings_text
from toolkit.finance.focus_rows import focus
from toolkit.finance.measures import measures
from toolkit.finance.recorded_choices import RecordedChoices
from toolkit.quote.planned_starts import PlannedStart
from toolkit.quote.right_sizes import RightSize

HERE = Path(__file__).parent


def focus_text(folder):
    path = folder / "focus.csv"
    focus_file.write(path, focus(a_month(), list_prices()).rows)
    return path.read_text()


def savings(make):
    """Print a ledger with later starts and right sizes, some unknown."""
    report = a_month()
    times = (NOVEMBER, NOVEMBER, DECEMBER)
    choices = RecordedChoices(
        (
            PlannedStart("3", *times, "g5.xlarge", Decimal("0.50")),
            PlannedStart("4", *times, "g6.xlarge", Decimal("0.50")),
        ),
        (
            RightSize("3", NOVEMBER, "g5.xlarge", Fraction(5, 4)),
            RightSize("7", NOVEMBER, "g5.xlarge", None),
        ),
    )
    return make(report, measures(report, list_prices(), choices).savings)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("report.html", lambda _: html_of(a_month())),
        ("focus.csv", focus_text),
        ("savings.txt", lambda _: savings(savings_text.as_text) + "\n"),
        ("savings.json", lambda _: json.dumps(savings(savings_text.as_json), indent=2) + "\n"),
    ],
)
def test_the_file_is_as_reviewed(name, make, tmp_path):
    path = HERE / name
    text = make(tmp_path)
    if os.environ.get("TOOLKIT_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; TOOLKIT_GOLDEN=write accepts it"
