"""Closed days: written once, sealed, corrected by rows of their own."""

from collections import defaultdict
from dataclasses import replace

import pytest

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from tests.unit.usage.samples import stored
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.build import build
from toolkit.usage import closed_days, database as databases, engine
from toolkit.usage.dump_columns import COLUMNS
from toolkit.usage.store import Store

DAY = 86_400
MIDNIGHT = T0 // DAY * DAY + DAY
NOW = T0 + 10 * DAY
EVER = Window(0, NOW)
INSTANCE = an_instance(launched=MIDNIGHT - 3600, ended=MIDNIGHT + 7200)
ATTEMPT = an_attempt(submitted=MIDNIGHT - 3700, started=MIDNIGHT - 3000, ended=MIDNIGHT + 7000)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def closed(store, attempts, instances, **options):
    shapes = {item.instance_id: G5 for item in instances}
    facts = engine.Facts(instances, shapes, a_book(), NOW)
    with store.changing() as temporary, databases.opened(temporary, threads=1) as database:
        database.table("attempts", COLUMNS, [stored(attempt) for attempt in attempts])
        engine.charge(database, facts, EVER, Policy())
        return closed_days.close(database, store, instances, NOW, temporary, **options)


def micro(store, first="2000-01-01", last="2100-01-01", keys=("component",)):
    sums = defaultdict(int)
    for row in closed_days.report(store, first, last, keys):
        sums[*row.keys, row.kind] += row.micro
    return dict(sums)


def exact(attempts, instances):
    report = build(
        cluster="demo",
        attempts=attempts,
        instances=instances,
        shapes={item.instance_id: G5 for item in instances},
        book=a_book(),
        window=EVER,
        now=NOW,
    )
    return {component.value: micro for component, micro in report.components().items()}


def test_the_days_of_a_charge_sum_to_it_and_each_has_its_part(store):
    assert closed(store, [ATTEMPT], [INSTANCE])
    whole = exact([ATTEMPT], [INSTANCE])
    assert {name: usd for (name, _), usd in micro(store).items()} == whole
    # 0.36 dollars an hour are 100 micro-dollars a second.
    assert micro(store, last="2026-11-21") == {
        ("boot", "charge"): 60_000,
        ("useful work", "charge"): 300_000,
    }
    assert micro(store, first="2026-11-22") == {
        ("useful work", "charge"): 700_000,
        ("idle tail", "charge"): 20_000,
    }


def test_what_is_closed_is_written_once(store):
    assert closed(store, [ATTEMPT], [INSTANCE]) == 4
    manifest = store.manifest()
    assert closed(store, [ATTEMPT], [INSTANCE]) == 0
    assert store.manifest() == manifest


def test_a_running_instance_is_not_closed(store):
    running = an_instance("i-2", node="gpu-002", ended=None)
    assert closed(store, [ATTEMPT], [INSTANCE, running]) == 4
    assert closed(store, [ATTEMPT], [running]) == 0


def test_a_correction_is_a_row_of_its_own(store):
    closed(store, [ATTEMPT], [INSTANCE])
    before = {path: path.read_bytes() for path in store.folder.rglob("charges/*/*.parquet")}
    failed = replace(ATTEMPT, state="NODE_FAIL")
    assert closed(store, [failed], [INSTANCE]) == 4
    sums = micro(store)
    assert sums["useful work", "charge"] == 1_000_000
    assert sums["useful work", "correction"] == -1_000_000
    assert sums["lost work", "correction"] == 1_000_000
    assert {path: path.read_bytes() for path in before} == before
    assert closed(store, [failed], [INSTANCE]) == 0


def test_a_sealed_day_takes_no_row_and_its_report_stays_the_same(store):
    closed(store, [ATTEMPT], [INSTANCE], sealed_until="2026-11-22")
    sealed = closed_days.report(store, "2026-11-01", "2026-11-22", ("account", "component"))
    failed = replace(ATTEMPT, state="NODE_FAIL")
    late = an_instance("i-2", node="gpu-002", launched=MIDNIGHT, ended=MIDNIGHT + 3600)
    closed(store, [failed], [INSTANCE, late])
    again = closed_days.report(store, "2026-11-01", "2026-11-22", ("account", "component"))
    assert again == sealed
    later = micro(store, first="2026-11-23")
    assert later["idle", "late charge"] == 360_000
    assert later["lost work", "correction"] == 1_000_000
    total = sum(micro(store).values())
    assert total == sum(exact([failed], [INSTANCE, late]).values())


def test_rows_have_the_names_of_their_time_the_status_and_the_sources_of_prices(store):
    closed(store, [ATTEMPT], [INSTANCE])
    keys = ("account", "user_name", "status", "price_sources", "usage_day")
    rows = {row.keys for row in closed_days.report(store, "2026-11-22", "2026-11-22", keys)}
    assert rows == {("vision", "ada", "estimated", "history", "2026-11-22")}


def test_the_days_of_a_shared_instance_left_to_the_exact_engine_sum_to_its_charges(store):
    crowd = [replace(ATTEMPT, key=key, job_id=str(key)) for key in (1, 2, 3)]
    assert closed(store, crowd, [INSTANCE])
    assert {name: usd for (name, _), usd in micro(store).items()} == exact(crowd, [INSTANCE])


def test_a_spot_refund_is_taken_back_from_each_day(store):
    life = {"launched": MIDNIGHT - 600, "ended": MIDNIGHT + 900, "end_cause": "interruption"}
    short = an_instance(**life)
    attempt = an_attempt(submitted=MIDNIGHT - 700, started=MIDNIGHT - 500, ended=MIDNIGHT + 900)
    closed(store, [attempt], [short])
    for day in ("2026-11-21", "2026-11-22"):
        assert sum(micro(store, day, day).values()) == 0
        assert micro(store, day, day)["spot refund", "charge"] < 0
