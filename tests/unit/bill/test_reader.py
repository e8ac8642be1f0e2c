"""Reading of exports: formats by content, hostile names, files that are cut short."""

import gzip
from contextlib import closing
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.bill.bills import CORPUS, as_gzip, as_parquet
from toolkit.bill import reader
from toolkit.bill.amounts import HIGHEST_USD, parse_amount
from toolkit.bill.columns import plain_name
from toolkit.bill.errors import BillError, BillUnreadable
from toolkit.bill.reader import bill_hash, open_files, read_lines

PLAIN = CORPUS / "plain-month.csv"


def lines_of(*paths):
    with closing(read_lines(open_files(paths))) as lines:
        return list(lines)


@pytest.mark.parametrize(
    "name", ["a*b[1]?.csv", "{x,y}.csv", 'it\'s "one".csv', "-rf.csv", "é.csv"]
)
def test_a_file_name_is_no_pattern(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PLAIN.read_bytes())
    (tmp_path / "axb1y.csv").write_text("another file\n")
    assert len(lines_of(path)) == 3
    parquet = as_parquet(PLAIN, tmp_path).rename(tmp_path / f"{name}.parquet")
    assert len(lines_of(parquet)) == 3


def test_the_format_is_told_by_content_and_not_by_name(tmp_path):
    packed = as_gzip(PLAIN, tmp_path).rename(tmp_path / "bill.parquet")
    table = as_parquet(PLAIN, tmp_path).rename(tmp_path / "bill.csv")
    assert len(lines_of(packed)) == len(lines_of(table)) == 3


def test_one_file_given_twice_counts_once(tmp_path):
    copy = tmp_path / "copy.csv"
    copy.write_bytes(PLAIN.read_bytes())
    files = open_files([PLAIN, copy])
    assert len(files) == 1
    assert bill_hash(files) == files[0].sha256


def test_the_hash_of_a_bill_does_not_depend_on_the_order_of_its_files():
    paths = [PLAIN, CORPUS / "refund.csv"]
    assert bill_hash(open_files(paths)) == bill_hash(open_files(paths[::-1]))


@pytest.mark.parametrize("kind", [as_gzip, as_parquet])
def test_a_file_that_is_cut_short_is_refused(tmp_path, kind):
    path = kind(PLAIN, tmp_path)
    content = path.read_bytes()
    for size in (3, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(BillError):
            lines_of(path)


def test_a_row_with_too_few_cells_is_refused(tmp_path):
    path = tmp_path / "bill.csv"
    path.write_bytes(PLAIN.read_bytes() + b"Anniversary,AWS\n")
    with pytest.raises(BillUnreadable, match=r"bill.csv can't be read"):
        lines_of(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"PAR1", b"\x1f\x8b", b"\x00\xff\n", b'"a\n'])
def test_a_file_that_is_no_export_is_refused(tmp_path, content):
    path = tmp_path / "bill.csv"
    path.write_bytes(content)
    with pytest.raises(BillError):
        lines_of(path)


def test_a_packed_file_without_an_end_of_line_is_refused(tmp_path):
    path = tmp_path / "bill.csv.gz"
    path.write_bytes(gzip.compress(PLAIN.read_bytes()[:-30]))
    with pytest.raises(BillUnreadable, match="does not end with a whole line"):
        lines_of(path)


def test_a_long_query_prints_no_progress_into_the_output(tmp_path):
    with reader._database(str(tmp_path)) as database:
        setting = database.execute("SELECT current_setting('enable_progress_bar')").fetchone()
    assert setting == (False,)


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.csv"):
        with pytest.raises(BillUnreadable, match="can't be read"):
            open_files([path])


@pytest.fixture(scope="module")
def database():
    """Open one database for all examples; to open one takes the longest."""
    with duckdb.connect() as opened:
        yield opened


@settings(deadline=None)
@given(number=st.floats(-1e9, 1e9, allow_nan=False))
def test_a_double_comes_over_as_the_same_double(database, number):
    text = database.execute("SELECT ?::DOUBLE::VARCHAR", [number]).fetchone()[0]
    amount = parse_amount(text)
    if amount is None:
        assert abs(number) < 1e-12  # more than thirty places: no amount of a bill
    else:
        assert float(amount) == number


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0.1", Decimal("0.1")),
        ("-1.2345678901234567e-05", Decimal("-0.000012345678901234567")),
        ("0E-99", Decimal(0)),
        ("1000000000000", HIGHEST_USD),
        ("1000000000000.1", None),
        ("1e40", None),
        ("1e-31", None),
        ("NaN", None),
        ("sNaN", None),
        ("-Infinity", None),
        ("", None),
        ("1,5", None),
    ],
)
def test_an_amount_is_exact_or_none(text, amount):
    assert parse_amount(text) == amount


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lineItem/UnblendedCost", "line_item_unblended_cost"),
        ("bill/BillingPeriodStartDate", "bill_billing_period_start_date"),
        ("reservation/ReservationARN", "reservation_reservation_a_r_n"),
        ("savingsPlan/SavingsPlanEffectiveCost", "savings_plan_savings_plan_effective_cost"),
        ("resourceTags/user:toolkit:cluster", "resource_tags_user_toolkit_cluster"),
        ("line_item_resource_id", "line_item_resource_id"),
    ],
)
def test_older_column_names_become_those_of_cur_2(old, new):
    assert plain_name(old) == new
