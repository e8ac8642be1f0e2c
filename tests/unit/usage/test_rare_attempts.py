"""Resized jobs of an imported dump, which SQL leaves to the exact engine's functions."""

from datetime import UTC, datetime

from toolkit.usage import database as databases, engine_input, rare_attempts
from toolkit.usage.import_dump import ImportOptions, import_dump
from toolkit.usage.store import Store

HEADER = "DBIndex|JobIDRaw|JobID|User|Submit|Start|End|State|NNodes|NodeList|Comment"


def second(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_a_resized_row_keeps_the_checkpoint_that_a_later_row_tells(tmp_path):
    checkpoint = second("2026-11-01T01:30:00")
    day = "2026-11-01T"
    dump = tmp_path / "dump.txt"
    dump.write_text(
        f"{HEADER}\n"
        f"1|7|7|ada|{day}00:00:00|{day}01:00:00|{day}02:00:00|RESIZING|1|gpu-001|\n"
        f"2|7|7|ada|{day}02:00:00|{day}02:00:00|{day}03:00:00|FAILED|1|gpu-001|"
        f"toolkit:checkpoint={checkpoint}\n",
        encoding="utf-8",
    )
    store = Store(tmp_path / "store")
    import_dump(store, dump, ImportOptions())
    with databases.opened(threads=1) as database:
        store.view(database, store.manifest().files(0, 2**40))
        engine_input.make_attempts(database, {})
        rare_attempts.apply_resizes(database)
        losses = dict(database.rows("SELECT attempt, lost_from FROM tries"))
    assert losses == {1: checkpoint, 2: second("2026-11-01T02:00:00")}
