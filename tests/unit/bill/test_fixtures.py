"""Bills whose match was derived by hand: `tests/corpus/cur`."""

from collections import Counter
from decimal import Decimal

import pytest

from tests.unit.bill.bills import CORPUS, as_gzip, as_parquet, fixture, reconciled
from toolkit.accounting.bill_status import usd_text
from toolkit.bill.errors import BillError

BILLS = sorted(path.stem for path in CORPUS.glob("*.csv"))
GOOD = [name for name in BILLS if "error" not in fixture(name)]
BAD = sorted(set(BILLS) - set(GOOD))
NO_PARQUET = {"formula-in-a-tag", "huge-cost"}  # half JSON is no map, and 1e40 and NaN have a test
FORMATS = {
    "csv": lambda path, folder: path,
    "gzip": as_gzip,
    "parquet": as_parquet,
}


def text(amount):
    return "unknown" if amount is None else usd_text(amount)


def answer(result):
    """Return a reconciliation in the words of a fixture."""
    total = result.match.total
    return {
        "lines": [
            [
                str(line.day),
                line.instance,
                *map(text, (line.estimated, line.billed, line.credits, line.gap)),
                line.cause.value,
            ]
            for line in result.match.lines
        ],
        "total": [text(total.estimated), text(total.billed), text(total.gap)],
        "classes": [
            [kind.value, item.lines, text(item.unblended), text(item.effective)]
            for kind, item in result.tally.classes.items()
        ],
        "statuses": dict(Counter(status.value for status in result.statuses.values())),
        "within": result.is_within_tolerance,
    }


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_bill_matches_as_derived_by_hand(name, kind, tmp_path):
    if kind == "parquet" and name in NO_PARQUET:
        kind = "csv"
    expected = fixture(name)
    result = reconciled(FORMATS[kind](CORPUS / f"{name}.csv", tmp_path), expected["instances"])
    found = answer(result)
    assert found == {key: expected[key] for key in found}
    assert len(result.notes) == len(expected.get("notes", ()))
    for words, note in zip(expected.get("notes", ()), result.notes, strict=True):
        assert words in note.replace(".csv.gz", ".csv")


@pytest.mark.parametrize("name", BAD)
def test_a_bill_that_is_none_ends_with_its_sentence(name):
    expected = fixture(name)
    with pytest.raises(BillError) as raised:
        reconciled(CORPUS / f"{name}.csv", expected.get("instances", []))
    assert raised.value.reason == expected["error"]
    for words in expected["words"]:
        assert words in f"{raised.value.message} {raised.value.next_step}"


@pytest.mark.parametrize("name", GOOD)
def test_the_derivations_add_up_by_hand_too(name):
    expected = fixture(name)
    known = [line for line in expected["lines"] if "unknown" not in line]
    gap = sum(Decimal(line[5]) for line in known)
    assert gap == Decimal(expected["total"][2])
    assert gap == sum(Decimal(line[3]) - Decimal(line[2]) for line in known)
