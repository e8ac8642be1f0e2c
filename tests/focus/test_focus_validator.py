"""The FinOps Foundation's focus-validator on our FOCUS files: `make focus`.

It needs Python 3.12 and older packages than ours, so an environment of its own.
$TOOLKIT_FOCUS_VALIDATOR names its Python (docs/finance.md). `make test` checks the same laws by
tests/unit/finance and tests/property/finance.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.finance.samples import a_month, a_report, an_interrupted_job, list_prices
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.finance import focus_file
from toolkit.finance.focus_columns import CRITERIA
from toolkit.finance.focus_rows import focus

VARIABLE = "TOOLKIT_FOCUS_VALIDATOR"
NOT_FOR_ANY_FILE = {"InvoiceId-C-005-C"}
"""Rules that no file can keep. InvoiceId must be null by C-004, and must not be by C-005: the model
has both without the condition that is in their words."""
COUNTS = re.compile(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+) \| Skipped: (\d+)")


def with_shares():
    attempts, instances = an_interrupted_job()
    return a_report(attempts, instances, cost_policy=CostPolicy(boot=Payer.SHARED))


def validated(path: Path) -> str:
    """Return what focus-validator prints of a file."""
    python = os.environ.get(VARIABLE)
    assert python, f"${VARIABLE} names the Python of focus-validator's environment"
    where = [python, "-c", "import focus_validator as it; print(it.__path__[0])"]
    folder = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    argv = [
        python, "-c", "from focus_validator.main import main; main()", "--data-file", str(path),
        "--validate-version", "1.2", "--block-download", "--applicability-criteria",
        ",".join(CRITERIA),
    ]  # fmt: skip
    # It reads its list of currencies by a path relative to where its package is.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=folder.parent, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def broken(text):
    """Return the rules that a file breaks."""
    return set(re.findall(r"([A-Za-z]+-[A-Z]-\d{3}-[A-Z]): FAIL", text))


@pytest.mark.parametrize("name", ["focus.csv", "focus.parquet"])
@pytest.mark.parametrize("make", [a_month, with_shares])
def test_the_file_breaks_no_rule_of_focus_1_2(make, name, tmp_path):
    path = tmp_path / name
    focus_file.write(path, focus(make(), list_prices()).rows)
    text = validated(path)
    assert broken(text) <= NOT_FOR_ANY_FILE, text[text.index("--- Failures") :]
    assert int(COUNTS.search(text)[2]) > 250  # passed


def test_a_file_without_a_mandatory_column_is_found(tmp_path):
    path = tmp_path / "focus.csv"
    focus_file.write(path, focus(a_month(), list_prices()).rows)
    path.write_text(path.read_text().replace("BilledCost", "Cost", 1))
    assert broken(validated(path)) - NOT_FOR_ANY_FILE
