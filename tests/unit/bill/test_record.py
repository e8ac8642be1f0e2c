"""The record of bills: what a bill adds, repeats, corrects, and what a killed writer leaves."""

import errno
import os
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.unit.bill.bills import CORPUS, NOW, changed, fixture, reconciled
from toolkit.bill import record
from toolkit.bill.errors import BillError, BillRecordDamaged, BillRefused
from toolkit.bill.history import bill_status, history
from toolkit.bill.record import BillEntry, CorrectionEntry, DayEntry, DayStatus

DAY = date(2026, 11, 3)
INSTANCES = fixture("plain-month")["instances"]
BILL = CORPUS / "plain-month.csv"
A = "i-0a00000000000001a"


def kinds(entries):
    return [type(entry) for entry in entries]


def open_bill(folder):
    """Return the bill of a month that has no invoice yet."""
    return changed("plain-month", folder, "1234567891", "", times=3)


def test_an_open_bill_reconciles_its_days_and_a_closed_one_makes_them_final(tmp_path):
    first = reconciled(open_bill(tmp_path), INSTANCES)
    assert {entry.status for entry in first.entries[1:]} == {DayStatus.RECONCILED}
    assert len(first.entries) == 1 + 28  # the last line is of the 29th
    second = reconciled(BILL, INSTANCES, entries=first.entries)
    assert {entry.status for entry in second.entries[1:]} == {DayStatus.FINAL}
    assert len(second.entries) == 1 + 30


def test_the_same_bill_again_adds_nothing():
    entries = reconciled(BILL, INSTANCES).entries
    assert kinds(entries) == [BillEntry, *[DayEntry] * 30]
    again = reconciled(BILL, INSTANCES, entries=entries)
    assert again.entries == ()
    assert again.statuses[DAY] is DayStatus.FINAL


def test_a_final_day_is_corrected_and_never_written_anew(tmp_path):
    entries = reconciled(BILL, INSTANCES).entries
    later = changed("plain-month", tmp_path, "1.0060000000", "0.5060000000")
    result = reconciled(later, INSTANCES, entries=entries, now=NOW + 5)
    bill, correction = result.entries
    assert correction == CorrectionEntry(
        DAY, A, Decimal("2.012"), Decimal("1.512"), Decimal("-0.500"), bill.bill, NOW + 5
    )
    known = history((*entries, *result.entries))
    assert known.days[DAY].usd == Decimal("1.512")
    assert known.status(DAY) is DayStatus.FINAL
    status = bill_status(known, DAY, DAY)
    assert (status.final, status.corrections[0].difference) == (1, Decimal("-0.500"))


def test_an_open_bill_of_a_final_day_is_a_correction_too(tmp_path):
    entries = reconciled(BILL, INSTANCES).entries
    later = changed("plain-month", tmp_path, "1234567891", "", times=3)
    later.write_text(later.read_text().replace("1.0060000000", "1.1060000000"))
    added = reconciled(later, INSTANCES, entries=entries).entries
    assert kinds(added) == [BillEntry, CorrectionEntry]


def test_an_old_bill_does_not_undo_a_later_one(tmp_path):
    entries = reconciled(BILL, INSTANCES).entries
    later = changed("plain-month", tmp_path, "1.0060000000", "0.5060000000")
    entries = (*entries, *reconciled(later, INSTANCES, entries=entries).entries)
    result = reconciled(BILL, INSTANCES, entries=entries)
    assert result.entries == ()
    assert result.notes == (
        "a later bill of 2026-11 was read before: the record of its days stays",
    )


def test_final_closes_a_month_whose_lines_have_no_invoice(tmp_path):
    path = open_bill(tmp_path)
    entries = reconciled(path, INSTANCES).entries
    added = reconciled(path, INSTANCES, entries=entries, final=True).entries
    assert kinds(added) == [DayEntry] * 30
    assert {entry.status for entry in added} == {DayStatus.FINAL}


def test_a_month_that_is_not_over_is_never_final():
    before_its_end = int(datetime(2026, 11, 30, 23, tzinfo=UTC).timestamp())
    with pytest.raises(BillRefused, match="2026-11 is not over"):
        reconciled(BILL, INSTANCES, final=True, now=before_its_end)
    result = reconciled(BILL, INSTANCES, now=before_its_end)
    assert set(result.statuses.values()) == {DayStatus.RECONCILED}


def test_entries_survive_the_file(tmp_path):
    entries = reconciled(BILL, INSTANCES).entries
    later = changed("plain-month", tmp_path, "1.0060000000", "0.5060000000")
    entries = (*entries, *reconciled(later, INSTANCES, entries=entries).entries)
    path = tmp_path / "records" / "demo.jsonl"
    for part in (entries[:3], entries[3:]):
        with record.opened(path) as file:
            record.append(file, part)
    assert record.read_entries(path) == entries
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [1, 40])
def test_the_half_line_of_a_killed_writer_is_written_again(tmp_path, left):
    entries = reconciled(BILL, INSTANCES).entries
    path = tmp_path / "demo.jsonl"
    with record.opened(path) as file:
        record.append(file, entries)
    path.write_bytes(path.read_bytes()[:-left])
    known = record.read_entries(path)
    assert known == entries[:-1]
    missing = reconciled(BILL, INSTANCES, entries=known).entries
    assert missing == entries[-1:]
    with record.opened(path) as file:
        record.append(file, missing)
    assert record.read_entries(path) == entries


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[1]",
        b"\xff",
        b'{"entry": "surprise"}',
        b'{"entry": "day", "day": "2026-11-03", "status": "paid", "billed": {}, "at": 1}',
        b'{"entry": "correction", "day": "2026-11-03", "instance": "i-1", "old": "NaN"}',
    ],
)
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "demo.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(BillRecordDamaged, match=r"demo.jsonl line 1 is no entry"):
        record.read_entries(path)


def test_an_unreadable_day_of_ours_stays_estimated():
    expected = fixture("huge-cost")
    result = reconciled(CORPUS / "huge-cost.csv", expected["instances"])
    recorded = {entry.day for entry in result.entries if isinstance(entry, DayEntry)}
    assert date(2026, 11, 5) not in recorded
    assert date(2026, 11, 4) in recorded


def test_a_line_of_ours_without_a_day_keeps_every_day_estimated(tmp_path):
    path = changed("plain-month", tmp_path, ",2026-11-03T10:00:00.000Z,Box", ",yesterday,Box")
    result = reconciled(path, INSTANCES)
    assert result.entries == ()
    assert not result.is_within_tolerance
    assert "a line of ours has no readable day: no day is recorded" in result.notes


def test_a_full_disk_is_an_error_and_the_next_entry_follows_the_last_whole_line(
    tmp_path, monkeypatch
):
    path = record.record_path(tmp_path, "demo")
    entry = BillEntry("a1", ("f1",), (date(2026, 11, 1),), NOW)
    real = os.write
    written = []

    def write(file, content):
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(real(file, content[:20]))
        return written[0]

    with record.opened(path) as file:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", write)
            with pytest.raises(BillError, match="can't write the record of bills: No space left"):
                record.append(file, [entry])
        assert record.read_entries(path) == ()
        record.append(file, [entry])
    assert record.read_entries(path) == (entry,)
