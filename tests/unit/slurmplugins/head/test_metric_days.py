"""Days of metrics: each is written once, when CloudWatch has what is asked for."""

import json

import pytest

from slurmplugins.cloud.metrics import DailyValue
from slurmplugins.errors import CloudUnreachable
from slurmplugins.head.metric_days import FIRST_DAYS, MetricDays
from slurmplugins.model import records
from tests.fakes.slurmdbd import FakeRecordStore

DAY, HOUR = 86_400, 3600
TODAY = 1_795_219_200 // DAY * DAY
BUCKETS = ("demo", "demo-bak")


class CloudWatch:
    """CloudWatch, with the values that a test gives it."""

    def __init__(self) -> None:
        self.values = {}
        self.asked = []

    def size(self, day, value, bucket="demo", kind="StandardStorage"):
        self.values[records.SIZE_METRIC, bucket, kind, day] = value

    def sizes(self, day, value):
        for bucket in BUCKETS:
            self.size(day, value, bucket)

    def bytes(self, day, value, name):
        self.values[name, "nat-1", "", day] = value

    def __call__(self, metrics, since, until) -> list[DailyValue]:
        self.asked.append((len(metrics), since, until))
        return [
            DailyValue(metric, day, float(value))
            for metric in metrics
            for (name, resource, kind, day), value in self.values.items()
            if since <= day < until
            and metric.name == name
            and dict(metric.dimensions).get("StorageType", "") == kind
            and metric.dimensions[0][1] == resource
        ]


@pytest.fixture
def cloudwatch():
    return CloudWatch()


class Head:
    """The program's part that writes metrics, with its memory."""

    def __init__(self, cloudwatch, nat_gateway=None) -> None:
        self.store, self.next_day = FakeRecordStore(), None
        self.days = MetricDays("demo", BUCKETS, nat_gateway, cloudwatch, self.store, self.remember)

    def remember(self, day):
        self.next_day = day

    def run(self, now):
        return self.days.run(self.next_day, now)

    def written(self):
        """Return the lines of each day, by the day's distance from today."""
        return {
            (records.parse_key(key).since - TODAY) // DAY: [
                json.loads(line) for line in records.unpack(body)[1].splitlines()
            ]
            for key, body in self.store.objects.items()
        }


def test_a_day_has_the_last_size_that_is_known_with_its_own_day(cloudwatch):
    """S3's size of a day comes behind the day's end."""
    head = Head(cloudwatch)
    head.next_day = TODAY - DAY
    cloudwatch.sizes(TODAY - 3 * DAY, 5)
    cloudwatch.sizes(TODAY - 2 * DAY, 7)
    head.run(TODAY + HOUR)
    size = [records.SIZE_METRIC, "demo", "StandardStorage", TODAY - 2 * DAY, 7]
    assert head.written() == {-1: [size, [size[0], "demo-bak", *size[2:]]]}
    (key,) = head.store.objects
    header, _ = records.unpack(head.store.objects[key])
    assert (header["kind"], header["buckets"], header["nat_gateways"]) == (
        "metrics", ["demo", "demo-bak"], [],
    )  # fmt: skip
    assert (header["since"], header["until"]) == (TODAY - DAY, TODAY)


def test_a_day_is_written_an_hour_behind_its_end_and_once(cloudwatch):
    head = Head(cloudwatch)
    head.next_day = TODAY - DAY
    cloudwatch.sizes(TODAY - DAY, 5)
    head.run(TODAY + HOUR - 1)
    assert cloudwatch.asked == []
    head.run(TODAY + HOUR)
    cloudwatch.sizes(TODAY - DAY, 6)
    head.run(TODAY + 2 * HOUR)
    assert len(cloudwatch.asked) == len(head.store.objects) == 1


def test_all_types_of_storage_are_asked_for_and_kept(cloudwatch):
    head = Head(cloudwatch, "nat-1")
    head.next_day = TODAY - DAY
    cloudwatch.sizes(TODAY - DAY, 5)
    cloudwatch.size(TODAY - DAY, 9, kind="DeepArchiveStorage")
    for name in records.NAT_METRICS:
        cloudwatch.bytes(TODAY - DAY, 100, name)
        cloudwatch.bytes(TODAY - 2 * DAY, 999, name)
    head.run(TODAY + HOUR)
    lines = head.written()[-1]
    assert [records.SIZE_METRIC, "demo", "DeepArchiveStorage", TODAY - DAY, 9] in lines
    assert [line for line in lines if line[1] == "nat-1"] == [
        [name, "nat-1", "", TODAY - DAY, 100] for name in records.NAT_METRICS
    ]
    assert cloudwatch.asked == [(2 * 22 + 2, TODAY - 3 * DAY, TODAY)]


@pytest.mark.parametrize("lacks", ["a bucket", "the gateway"])
def test_what_lacks_is_waited_for_three_days(cloudwatch, lacks):
    """Know the size of a cluster's first days in the end."""
    head = Head(cloudwatch, "nat-1")
    head.next_day = TODAY - DAY
    cloudwatch.size(TODAY - DAY, 5)
    if lacks == "the gateway":
        cloudwatch.size(TODAY - DAY, 5, "demo-bak")
    else:
        for name in records.NAT_METRICS:
            cloudwatch.bytes(TODAY - DAY, 100, name)
    head.run(TODAY + 3 * DAY - 1)
    assert (head.written(), head.next_day) == ({}, TODAY - DAY)
    head.run(TODAY + 3 * DAY)
    assert list(head.written()) == [-1]
    assert head.next_day == TODAY


def test_a_new_cluster_begins_with_its_first_day(cloudwatch):
    head = Head(cloudwatch)
    head.run(TODAY + 5 * HOUR)
    assert (head.next_day, head.store.objects) == (TODAY, {})
    head.run(TODAY + 6 * HOUR)
    assert len(cloudwatch.asked) == 1, "the day is not over: nothing is asked for"


def test_a_head_without_memory_begins_with_what_cloudwatch_has_of_two_weeks(cloudwatch):
    for day in range(1, 30):
        cloudwatch.sizes(TODAY - day * DAY, day)
    head = Head(cloudwatch)
    head.run(TODAY + HOUR)
    assert sorted(head.written()) == list(range(-FIRST_DAYS, 0))


def test_a_head_that_was_away_writes_all_days_in_steps(cloudwatch):
    for day in range(1, 100):
        cloudwatch.sizes(TODAY - day * DAY, day)
    head = Head(cloudwatch)
    head.next_day = TODAY - 50 * DAY
    head.run(TODAY + HOUR)
    head.run(TODAY + HOUR)
    assert sorted(head.written()) == list(range(-50, 0))
    assert {day: lines[0][-1] for day, lines in head.written().items()} == {
        -day: day for day in range(1, 51)
    }


def test_days_that_cloudwatch_keeps_no_more_are_left_out(cloudwatch):
    head = Head(cloudwatch)
    head.next_day = TODAY - 1000 * DAY
    for _ in range(20):
        head.run(TODAY + HOUR)
    assert head.next_day == TODAY - 3 * DAY, "what lacks is waited for"
    assert min(since for _, since, _ in cloudwatch.asked) > TODAY - 455 * DAY


def test_a_run_that_fails_is_repeated(cloudwatch):
    head = Head(cloudwatch)
    head.next_day = TODAY - DAY

    def refuse(*_):
        raise CloudUnreachable("CloudWatch does not answer", code="Unreachable")

    broken = MetricDays("demo", BUCKETS, None, refuse, head.store, head.remember)
    with pytest.raises(CloudUnreachable):
        broken.run(head.next_day, TODAY + HOUR)
    assert head.next_day == TODAY - DAY
    cloudwatch.sizes(TODAY - DAY, 5)
    head.run(TODAY + HOUR)
    assert list(head.written()) == [-1]
