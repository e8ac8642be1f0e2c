"""A store whose list of days is damaged says so, and names the file."""

from __future__ import annotations

import json

import pytest

from toolkit.usage import closed_store
from toolkit.usage.cluster_store import VERSION, ClusterStore
from toolkit.usage.errors import StoreUnreadable
from toolkit.usage.lazy_mapping import LazyMapping

DAY = 1_795_000_000 // 86_400 * 86_400
RECORDS = {"batches": 1, "price_types": {}, "attempts": {}, "instances": {}, "prices": {}}


@pytest.fixture
def store(tmp_path):
    return ClusterStore(tmp_path)


@pytest.mark.parametrize("days", [[], {"x": {}}, None])
def test_a_damaged_list_of_closed_days_is_refused(store, days):
    content = {"version": VERSION, "closings": 1, "days": days}
    (store.folder / "closed.json").write_text(json.dumps(content))
    with pytest.raises(StoreUnreadable, match=r"closed\.json names no closed days"):
        closed_store.read(store)


@pytest.mark.parametrize("item", [{}, [], None, {"charges": 5, "corrections": []}])
def test_a_damaged_closed_day_is_refused_when_it_is_asked_for(store, item):
    content = {"version": VERSION, "closings": 1, "days": {str(DAY): item}}
    (store.folder / "closed.json").write_text(json.dumps(content))
    closed = closed_store.read(store)
    with pytest.raises(StoreUnreadable, match=r"closed\.json names no closed days"):
        closed.days[DAY]


@pytest.mark.parametrize(
    "damage", [{"attempts": 5}, {"price_types": 5}, {"batches": 1, "unknown": 2}]
)
def test_a_damaged_list_of_records_is_refused(store, damage):
    store.records_file.write_text(json.dumps({"version": VERSION, **RECORDS, **damage}))
    with pytest.raises(StoreUnreadable, match=r"records\.json is no file of a store"):
        store.records()


@pytest.mark.parametrize("item", [{}, [], None, {"files": 5}])
def test_a_damaged_day_of_records_is_refused_when_it_is_asked_for(store, item):
    damage = {"attempts": {"2026-11-21": item}}
    store.records_file.write_text(json.dumps({"version": VERSION, **RECORDS, **damage}))
    with pytest.raises(StoreUnreadable, match=r"records\.json is no file of a store"):
        store.records().attempts["2026-11-21"]


def test_damaged_types_of_a_days_prices_are_refused_when_they_are_asked_for(store):
    damage = {"price_types": {"us-east-1/2026-11-21": 5}}
    store.records_file.write_text(json.dumps({"version": VERSION, **RECORDS, **damage}))
    with pytest.raises(StoreUnreadable, match=r"records\.json is no file of a store"):
        store.records().price_types["us-east-1/2026-11-21"]


def test_a_lazy_mapping_makes_only_the_values_that_are_asked_for_and_each_once():
    made = []

    def make(raw):
        made.append(raw)
        return raw * 2

    values = LazyMapping({"a": 1, "b": 2}, make, ValueError)
    assert (list(values), len(values), "a" in values, "c" in values) == (["a", "b"], 2, True, False)
    assert not made
    assert (values["b"], values["b"], values.get("c")) == (4, 4, None)
    assert made == [2]
