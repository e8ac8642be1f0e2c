"""DuckDB: loaded when it is asked, beside other work, and without its layer of Python."""

import gc
import sys

import duckdb
import pytest

from toolkit.commands import usage_closing
from toolkit.usage import database as databases
from toolkit.usage.errors import UsageStoreError


def ask_and(act, *, meanwhile):
    with databases.opened() as database:
        if meanwhile:
            database.open_meanwhile()
        database.run("SELECT 1")
        act()


def fail():
    raise KeyError("other")


def test_the_engine_is_duckdbs_own(monkeypatch):
    assert databases._engine().connect is duckdb.connect
    assert databases._engine().Error is duckdb.Error
    monkeypatch.setitem(sys.modules, "_duckdb", None)
    assert databases._engine() is duckdb, "another DuckDB may name its engine otherwise"


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_database_is_opened_once(meanwhile):
    with databases.opened() as database:
        if meanwhile:
            database.open_meanwhile()
        assert not database.is_used
        database.run("CREATE TEMP TABLE numbers AS SELECT 4711 AS number")
        assert database.value("SELECT number FROM numbers") == 4711


@pytest.mark.parametrize("meanwhile", [False, True])
def test_an_engine_that_does_not_open_fails_where_it_is_asked(monkeypatch, meanwhile):
    monkeypatch.setattr(databases, "MEMORY", "much")
    with databases.opened() as database:
        if meanwhile:
            database.open_meanwhile()  # nobody asks it
    with pytest.raises(UsageStoreError, match="DuckDB"):
        ask_and(lambda: None, meanwhile=meanwhile)


def test_another_error_stays_what_it_is():
    with pytest.raises(KeyError):
        ask_and(fail, meanwhile=False)


@pytest.mark.parametrize(
    ("kind", "value"), [("UBIGINT", 2**64), ("BIGINT", "a word"), ("DECIMAL(20, 0)", 10**20)]
)
def test_a_value_that_its_column_cannot_hold_is_refused(kind, value):
    with pytest.raises(UsageStoreError), databases.opened() as database:
        database.table("values_read", (("value", kind),), [(value,)])


def test_a_closing_leaves_the_collection_of_garbage_as_it_was(monkeypatch):
    known = gc.get_threshold()
    monkeypatch.setattr(usage_closing, "_FEW_COLLECTIONS", known[0] + 1)
    with usage_closing._few_collections():
        assert gc.get_threshold() == (known[0] + 1, *known[1:])
    assert gc.get_threshold() == known
    with pytest.raises(KeyError), usage_closing._few_collections():
        fail()
    assert gc.get_threshold() == known
