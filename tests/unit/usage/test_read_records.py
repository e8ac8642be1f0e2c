"""Pages of records read into the store: each once, whatever kills the program."""

import json
from dataclasses import replace

import duckdb
import pytest

from slurmplugins.head.price_days import PriceDays
from slurmplugins.model import records
from slurmplugins.slurm import sacct as call
from tests.fakes.record_bucket import Adder
from tests.fakes.slurmdbd import NAMES, Row
from tests.unit.accounting.test_records import DAY, HOUR, KEPT, T0, Cluster, copy_of
from tests.unit.usage.record_store import Person
from toolkit.accounting.metrics import STANDARD, Metrics
from toolkit.accounting.records import Buckets, RecordsInS3
from toolkit.usage import cluster_store, merge, read_records
from toolkit.usage.stored_records import StoredRecords

NOW = T0 + 2 * DAY
TOKEN = "8randoms"
GIB = 2**30


class KilledError(BaseException):
    """The program's end by kill -9."""


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    cluster.live(T0, NOW)
    store = Adder(cluster.s3, KEPT)

    def prices(types, since, until):
        return [("g5.xlarge", "us-east-1a", since + HOUR * hour, f"0.3{hour}") for hour in (0, 5)]

    PriceDays("demo", "us-east-1", ["g5.xlarge"], prices, store, [].append).run(T0, NOW + HOUR)
    for day in (T0, T0 + DAY):
        metrics(cluster, day, 10 * GIB + day)
    return cluster


def metrics(cluster, day, size, *, measured=None, passed=None, written=None, others=()):
    """Write what CloudWatch measured of a day to the bucket."""
    measured = day if measured is None else measured
    lines = [
        *((records.SIZE_METRIC, KEPT, STANDARD, measured, size) for _ in range(size is not None)),
        *((records.SIZE_METRIC, KEPT, name, measured, more) for name, more in others),
        *((name, "nat-1", "", day, passed // 2) for name in records.NAT_METRICS if passed),
    ]
    written = day + DAY + HOUR if written is None else written
    gateways = ["nat-1"] if passed else []
    header = records.first_line(
        "metrics", "demo", (day, day + DAY), written, buckets=[KEPT], nat_gateways=gateways
    )
    body = records.pack(header, "".join(json.dumps(line) + "\n" for line in lines))
    key = records.metrics_key(day, body)
    cluster.s3.put(KEPT, key, body, written)
    return key


@pytest.fixture
def bucket(cluster):
    """The cluster, whose bucket a test may change."""
    return copy_of(cluster)


def content(person):
    """Return all that a report may read of a store."""
    stored = StoredRecords(person.store)
    return known(stored)


def known(source):
    attempts = source.attempts("demo", 0, NOW + DAY)
    instances = source.instances(0, NOW + DAY)
    prices = source.prices("us-east-1", {"g5.xlarge"}, T0, NOW)
    return (
        sorted(
            (replace(item, exit_codes=(), comments="") for item in attempts.content.attempts),
            key=lambda item: (item.key, item.job_id),
        ),
        sorted(
            {json.loads(line.text)["instance_id"]: line.text for line in instances.lines}.items()
        ),
        sorted(prices.points),
        prices.days,
        Metrics.of(source.metrics(T0 - DAY, NOW + DAY).rows),
        {
            item.name
            for item in (
                *attempts.content.set_aside,
                *prices.set_aside,
                *source.metrics(T0 - DAY, NOW + DAY).set_aside,
            )
        },
        (attempts.reach, instances.reach),
    )


def test_a_store_has_what_the_bucket_has(bucket, tmp_path):
    person = Person(bucket, tmp_path)
    person.read(NOW)
    assert content(person) == known(RecordsInS3(Buckets(bucket.s3, "demo", KEPT)))


def test_a_page_that_s3_refuses_is_named_until_it_is_read(bucket, tmp_path):
    key = next(key for key in bucket.s3.buckets[KEPT] if key.startswith(records.SACCT))
    bucket.s3.refusals = {key: "AccessDenied"}
    person = Person(bucket, tmp_path)
    (aside,) = person.read(NOW).set_aside
    assert (aside.name, aside.reason) == (key, "S3 refuses it (AccessDenied)")
    assert content(person) == known(RecordsInS3(Buckets(bucket.s3, "demo", KEPT)))
    assert StoredRecords(person.store).attempts("demo", 0, NOW).content.set_aside == (aside,)
    bucket.s3.refusals = {}
    result = person.read(NOW + 8 * DAY)
    assert (result.pages, result.set_aside) == (1, ())
    assert content(person) == known(RecordsInS3(Buckets(bucket.s3, "demo", KEPT)))
    assert person.read(NOW + 8 * DAY).pages == 0


def test_pages_that_s3_still_refuses_end_no_later_reading(bucket, tmp_path):
    keys = [key for key in bucket.s3.buckets[KEPT] if key.startswith(records.SACCT)][:2]
    bucket.s3.refusals = dict.fromkeys(keys, "AccessDenied")
    person = Person(bucket, tmp_path)
    person.read(NOW)
    again = person.read(NOW + 8 * DAY)
    assert {aside.name for aside in again.set_aside} == set(keys)


def test_only_new_pages_are_fetched(bucket, tmp_path):
    person = Person(bucket, tmp_path)
    first = person.read(NOW)
    assert first.pages == len(bucket.s3.buckets[KEPT]) == bucket.s3.calls["get"]
    bucket.s3.calls.clear()
    assert person.read(NOW).pages == 0
    assert bucket.s3.calls == {"list": 4}
    page(bucket, [Row(999, 999, NOW - HOUR, NOW - 60)], NOW + HOUR)
    bucket.s3.calls.clear()
    result = person.read(NOW + HOUR)
    assert (result.pages, result.attempts) == (1, 1)
    assert bucket.s3.calls == {"list": 4, "get": 1}
    assert 999 in {item.key for item in content(person)[0]}


def test_a_dry_run_fetches_and_keeps_nothing(bucket, tmp_path):
    person = Person(bucket, tmp_path / "store")
    assert person.read(NOW, dry_run=True).pages == len(bucket.s3.buckets[KEPT])
    assert bucket.s3.calls["get"] == 0
    assert not (tmp_path / "store").exists()


def test_pages_of_a_head_that_began_anew_are_found_within_a_week(bucket, tmp_path):
    """A late page of an old time lies among the old keys."""
    person = Person(bucket, tmp_path)
    person.read(NOW)
    page(bucket, [Row(998, 998, T0 - 90 * DAY, T0 - 89 * DAY)], T0 - 80 * DAY)
    assert person.read(NOW + DAY).pages == 0
    assert person.read(NOW + DAY, whole=True).pages == 1
    page(bucket, [Row(997, 997, T0 - 90 * DAY, T0 - 89 * DAY)], T0 - 79 * DAY)
    assert person.read(NOW + 9 * DAY).pages == 1


def test_a_program_that_is_killed_anywhere_leaves_the_same_store(bucket, tmp_path, monkeypatch):
    whole = Person(bucket, tmp_path / "whole")
    whole.read(NOW)
    monkeypatch.setattr(read_records, "PAGES_A_BATCH", 80)
    left = [0]

    def dying(work):
        def step(*arguments, **named):
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
            answer = work(*arguments, **named)
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
            return answer

        return step

    for module, name in (
        (cluster_store, "write_atomically"),
        (merge, "_moved"),
        (read_records, "read_pages"),
    ):
        monkeypatch.setattr(module, name, dying(getattr(module, name)))
    person = Person(bucket, tmp_path / "killed")
    for steps in range(2, 40, 3):
        left[0] = steps
        try:
            person.read(NOW)
        except KilledError:
            continue
    left[0] = 10**9
    person.read(NOW)
    assert content(person) == content(whole)
    assert person.read(NOW).pages == 0


def page(cluster, rows, until, *, text=None, written=None):
    """Write a page of sacct to the bucket."""
    written = until if written is None else written
    header = records.first_line(
        "sacct", "demo", (until - HOUR, until), written,
        slurm="25.11", fields=NAMES, delimiter=call.delimiter(TOKEN),
    )  # fmt: skip
    body = records.pack(header, "".join(row.text(TOKEN) for row in rows) if text is None else text)
    first = min((row.eligible for row in rows), default=until - HOUR)
    key = records.sacct_key(until - HOUR, until, first, body)
    cluster.s3.put(KEPT, key, body, written)
    return key


def test_late_rows_and_repeats_are_the_last_row_of_each_attempt(bucket, tmp_path):
    person = Person(bucket, tmp_path)
    begun = NOW - 5 * HOUR
    page(bucket, [Row(900, 900, begun)], NOW - 4 * HOUR)
    page(bucket, [Row(900, 900, begun, NOW - HOUR, state="NODE_FAIL")], NOW - 3 * HOUR)
    person.read(NOW)
    page(bucket, [Row(900, 900, begun)], NOW + HOUR)  # slurmdbd lost the end, the record has it
    page(bucket, [Row(900, 900, begun, NOW - 2 * HOUR, state="FAILED")], NOW - 2 * HOUR, written=9)
    person.read(NOW + HOUR)
    (attempt,) = [item for item in content(person)[0] if item.key == 900]
    assert (attempt.ended, attempt.state) == (NOW - HOUR, "NODE_FAIL")
    assert content(person) == known(RecordsInS3(Buckets(bucket.s3, "demo", KEPT)))


def test_two_attempts_of_one_database_index_are_both_in_the_store(bucket, tmp_path):
    """A restored database counts on from its backup."""
    person = Person(bucket, tmp_path)
    page(bucket, [Row(7, 70, NOW - 900, NOW - 800)], NOW)
    person.read(NOW)
    page(bucket, [Row(7, 10_070, NOW - 700, NOW - 600)], NOW + HOUR)
    page(bucket, [Row(7, 10_070, NOW - 500, NOW - 400)], NOW + 2 * HOUR)
    person.read(NOW + 2 * HOUR)
    jobs = [(item.job_id, item.submitted) for item in content(person)[0] if item.key == 7]
    assert jobs == [("10070", NOW - 700), ("10070", NOW - 500), ("70", NOW - 900)]


def test_what_is_hostile_is_set_aside_and_stays_so(bucket, tmp_path):
    s3 = bucket.s3
    damaged = page(bucket, [Row(901, 901, NOW - 900)], NOW)
    s3.buckets[KEPT][damaged] += b"x"
    forged = page(bucket, [], NOW + 60, text="no row at all")
    numbers = Row(902, 902, NOW - 900, NOW - 800).text(TOKEN).split(call.delimiter(TOKEN))
    numbers[NAMES.index("NNodes")] = "9" * 20
    huge = page(bucket, [], NOW + 120, text=call.delimiter(TOKEN).join(numbers))
    price = records.pack(
        records.first_line("prices", "demo", (T0, T0 + DAY), NOW, region="us-east-1", types=["x"]),
        "[" * 2000,
    )
    prices = records.prices_key("us-east-1", T0, price)
    s3.put(KEPT, prices, price, NOW)
    header = records.first_line("metrics", "demo", (T0, T0 + DAY), NOW, buckets=[KEPT])
    metric = records.pack(header, "no json")
    broken = records.metrics_key(T0, metric)
    s3.put(KEPT, broken, metric, NOW)
    person = Person(bucket, tmp_path)
    read = person.read(NOW + HOUR)
    names = {item.name for item in read.set_aside}
    assert {damaged, forged, prices, broken} <= names
    assert any(huge in name for name in names)
    assert {damaged, forged, prices, broken} <= content(person)[5]
    assert person.read(NOW + HOUR).pages == 0


def test_a_store_that_is_older_than_projects_is_read_and_merged(bucket, tmp_path):
    """Read files without the column, alone and beside newer ones."""
    person = Person(bucket, tmp_path)
    person.read(NOW)
    before = content(person)
    for path in person.store.folder.glob("attempts/*/*.parquet"):
        older = path.with_suffix(".older")
        rows = duckdb.read_parquet(str(path)).project("* EXCLUDE project")
        rows.write_parquet(str(older))
        older.replace(path)
    assert content(person) == before
    page(bucket, [Row(900, 900, NOW - 5 * HOUR, NOW - 4 * HOUR)], NOW + HOUR)
    person.read(NOW + HOUR)
    after = content(person)[0]
    assert [item for item in after if item.key != 900] == before[0]
    assert {item.project for item in after} == {""}


def test_of_two_objects_of_a_day_the_one_that_was_written_first_counts(bucket, tmp_path):
    """Let a head that lost its memory write a day again.

    CloudWatch may know more of it by then.
    """
    person = Person(bucket, tmp_path)
    metrics(bucket, T0, 5, written=NOW + 9 * HOUR)
    metrics(bucket, T0 + DAY, 7, written=T0 + DAY + HOUR, passed=8)
    person.read(NOW + 10 * HOUR)
    stored = content(person)[4]
    assert stored.stored[T0].standard == 10 * GIB + T0
    assert (stored.stored[T0 + DAY].standard, stored.passed) == (7, {T0 + DAY: 8})
    assert content(person) == known(RecordsInS3(Buckets(bucket.s3, "demo", KEPT)))
    metrics(bucket, T0, 6, written=NOW + 11 * HOUR)
    metrics(bucket, T0 - DAY, 3, written=NOW + 11 * HOUR)
    person.read(NOW + 12 * HOUR, whole=True)
    assert content(person)[4].stored[T0].standard == 10 * GIB + T0
    assert content(person)[4].stored[T0 - DAY].standard == 3


def test_a_store_that_is_older_than_metrics_is_read(bucket, tmp_path):
    person = Person(bucket, tmp_path)
    person.read(NOW)
    path = person.store.records_file
    data = json.loads(path.read_text())
    del data["metrics"]
    path.write_text(json.dumps(data))
    assert content(person)[4] == Metrics()
    metrics(bucket, T0 + 2 * DAY, 9)
    person.read(NOW + DAY + 2 * HOUR)
    assert content(person)[4].stored[T0 + 2 * DAY].standard == 9


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        "null",
        "[" * 2000,
        json.dumps([records.SIZE_METRIC, KEPT, STANDARD, T0, -1]),
        json.dumps([records.SIZE_METRIC, KEPT, STANDARD, T0, 2**63]),
        json.dumps([records.SIZE_METRIC, KEPT, STANDARD, 10**18, 1]),
        json.dumps([records.SIZE_METRIC, KEPT, STANDARD, T0, 1.5]),
        json.dumps([records.SIZE_METRIC, KEPT, STANDARD, T0, "NaN"]),
    ],
)
def test_a_hostile_day_of_metrics_is_set_aside_and_unknown(tmp_path, line):
    bucket = Cluster()
    header = records.first_line("metrics", "demo", (T0, T0 + DAY), NOW, buckets=[KEPT])
    body = records.pack(header, line)
    key = records.metrics_key(T0, body)
    bucket.s3.put(KEPT, key, body, NOW)
    person = Person(bucket, tmp_path)
    assert [item.name for item in person.read(NOW).set_aside] == [key]
    source = RecordsInS3(Buckets(bucket.s3, "demo", KEPT))
    for recorded in (StoredRecords(person.store).metrics(T0, NOW), source.metrics(T0, NOW)):
        assert recorded.rows == ()
        assert [item.name for item in recorded.set_aside] == [key]


@pytest.mark.parametrize("header", [{"since": 10**18}, {"buckets": 5}, {"buckets": {"a": 1}}])
def test_a_hostile_first_line_of_metrics_ends_nothing(tmp_path, header):
    bucket = Cluster()
    first = records.first_line("metrics", "demo", (T0, T0 + DAY), NOW, buckets=[KEPT])
    body = records.pack(first | header, json.dumps([records.SIZE_METRIC, KEPT, STANDARD, T0, 1]))
    bucket.s3.put(KEPT, records.metrics_key(T0, body), body, NOW)
    person = Person(bucket, tmp_path)
    person.read(NOW)
    assert StoredRecords(person.store).metrics(T0, NOW).rows == ()
