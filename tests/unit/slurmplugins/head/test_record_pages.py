"""Pages of instances, the program's memory, and what people see of it."""

import json

import pytest

from slurmplugins.head import instance_pages
from slurmplugins.head.instance_pages import GAP, InstancePages
from slurmplugins.head.record_state import FILE, RecordState
from slurmplugins.head.sacct_windows import Moment, Place
from slurmplugins.model import records
from slurmplugins.reconciler.instance_ledger import LedgerEntry, to_json
from tests.fakes.slurmdbd import FakeRecordStore
from toolkit.deploy import record_age

NOW = 1_795_219_200


def entry(number, ended_at=None):
    return LedgerEntry(
        instance_id=f"i-{number}", node="", pool="gpu", partition="gpu", attempt="a",
        type="g5.xlarge", zone="us-east-1a", lifecycle="spot", launched_at=NOW - 90_000.0 + number,
        price="1", ended_at=ended_at,
    )  # fmt: skip


class Ledger:
    """A bucket with the entries of all instances."""

    def __init__(self, *entries) -> None:
        self.entries = {item.instance_id: item for item in entries}
        self.asked = []

    def changed_since(self, prefix, moment):
        self.asked.append(moment)
        return list(self.entries)

    def get(self, key):
        return to_json(self.entries[key])


def lines(store):
    return [
        json.loads(line)["instance_id"]
        for body in store.objects.values()
        for line in records.unpack(body)[1].splitlines()
    ]


def test_a_run_soon_after_another_asks_the_bucket_for_nothing():
    ledger, store = Ledger(), FakeRecordStore()
    pages = InstancePages("demo", ledger, store, lambda: [entry(1), entry(2, NOW - 60.0)])
    assert pages.run(NOW - GAP, NOW) == NOW
    assert ledger.asked == []
    (key,) = store.objects
    assert (records.parse_key(key).until, records.parse_key(key).first) == (NOW, NOW - 89_998)
    assert lines(store) == ["i-2", "i-1"]


@pytest.mark.parametrize("last", [None, NOW - GAP - 1, NOW + 10])
def test_a_run_after_a_gap_or_a_clock_set_back_reads_the_ledger(last):
    ledger, store = Ledger(entry(7, NOW - 80_000.0)), FakeRecordStore()
    InstancePages("demo", ledger, store, lambda: [entry(1)]).run(last, NOW)
    assert ledger.asked == [0 if last is None else min(last, NOW) - 3600]
    assert lines(store) == ["i-7", "i-1"]


def test_many_instances_are_in_pages_by_their_ends(monkeypatch):
    monkeypatch.setattr(instance_pages, "ENTRIES_AT_ONCE", 2)
    ledger = Ledger(*(entry(number, NOW - 1000.0 * number) for number in range(1, 6)))
    store = FakeRecordStore()
    InstancePages("demo", ledger, store, list).run(None, NOW)
    untils = sorted(records.parse_key(key).until for key in store.objects)
    assert untils == [NOW - 3999, NOW - 1999, NOW]


def test_the_programs_memory_survives_and_a_damaged_one_begins_anew(tmp_path):
    place = Place(NOW, NOW + 1, 7200, {"7": "70"}, Moment(NOW, 1.5, "b"))
    state = RecordState(place, NOW, NOW - NOW % 86_400)
    state.save(tmp_path)
    assert RecordState.load(tmp_path) == state
    (tmp_path / FILE).write_text('{"attempts": {}}')
    assert RecordState.load(tmp_path) == RecordState()
    (tmp_path / FILE).unlink()
    assert RecordState.load(tmp_path) == RecordState()


def test_a_person_is_warned_of_records_that_end_long_ago():
    last = record_age.parse({"attempts": NOW, "settled": NOW, "instances": NOW, "error": ""})
    late = NOW + record_age.LATE_SECONDS
    assert record_age.warning(last, late, head_since=0) == ""
    assert "end 2 h ago" in record_age.warning(last, late + 1, head_since=0)
    assert record_age.warning(record_age.LastRecords(), late, head_since=late - 60) == ""
    assert "do not exist" in record_age.warning(record_age.LastRecords(), late, head_since=0)
    failed = record_age.parse({"attempts": NOW, "error": "slurmdbd does not answer"})
    assert "slurmdbd does not answer" in record_age.warning(failed, NOW + 1, head_since=0)


@pytest.mark.parametrize("damage", [None, {}, {"attempts": "x"}, {"attempts": float("nan")}])
def test_a_status_that_can_not_be_read_is_no_record(damage):
    assert record_age.parse(damage) == record_age.LastRecords()
