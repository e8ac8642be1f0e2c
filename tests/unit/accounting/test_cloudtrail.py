"""CloudTrail's files, whole and hostile, and what their events change."""

import gzip
import json

import pytest

from tests.unit.accounting.samples import T0, an_instance
from toolkit.accounting import cloudtrail
from toolkit.accounting.cloudtrail import Trail, TrailEvent
from toolkit.accounting.errors import AccountingError

# The examples of the CloudTrail and EC2 user guides, shortened.
STOP = {
    "eventVersion": "1.08",
    "userIdentity": {"type": "IAMUser", "userName": "Mateo"},
    "eventTime": "2026-11-21T11:00:00Z",
    "eventSource": "ec2.amazonaws.com",
    "eventName": "StopInstances",
    "requestParameters": {"instancesSet": {"items": [{"instanceId": "i-1"}]}, "force": False},
    "responseElements": {
        "instancesSet": {
            "items": [
                {
                    "instanceId": "i-1",
                    "currentState": {"code": 64, "name": "stopping"},
                    "previousState": {"code": 16, "name": "running"},
                }
            ]
        }
    },
    "eventType": "AwsApiCall",
}
START = STOP | {"eventTime": "2026-11-21T12:00:00Z", "eventName": "StartInstances"}
TERMINATE = STOP | {"eventTime": "2026-11-21T13:00:00Z", "eventName": "TerminateInstances"}
EVICTED = {
    "eventVersion": "1.05",
    "userIdentity": {"accountId": "123456789012", "invokedBy": "ec2.amazonaws.com"},
    "eventTime": "2026-11-21T10:30:00Z",
    "eventSource": "ec2.amazonaws.com",
    "eventName": "BidEvictedEvent",
    "eventType": "AwsServiceEvent",
    "requestParameters": None,
    "responseElements": None,
    "serviceEventDetails": {"instanceIdSet": ["i-1"]},
}
RUN = STOP | {"eventTime": "2026-11-21T09:00:00Z", "eventName": "RunInstances"}
UNSEEN = an_instance(ended=T0 + 400_000, end_cause="unknown", end_seen=False)


@pytest.fixture
def trail(tmp_path):
    def read(*records):
        path = tmp_path / "trail.json"
        path.write_text(json.dumps({"Records": records}))
        return cloudtrail.read([path])

    return read


def told(events, instance):
    return list(events.disagreements(instance, "the instance ledger", "the instance ledger"))


def test_the_events_of_an_instance_are_read_in_their_order(trail):
    events = trail(TERMINATE, START, STOP, STOP, EVICTED).events
    assert events == {
        "i-1": (
            TrailEvent(T0 + 1800, "BidEvictedEvent"),
            TrailEvent(T0 + 3600, "StopInstances"),
            TrailEvent(T0 + 7200, "StartInstances"),
            TrailEvent(T0 + 10_800, "TerminateInstances"),
        )
    }


def test_an_end_that_nobody_saw_is_cloudtrails(trail):
    life = trail(TERMINATE).completed(UNSEEN)
    assert (life.ended, life.end_seen, life.end_cause) == (T0 + 10_800, True, "unknown")


def test_an_eviction_is_an_interruption(trail):
    life = trail(EVICTED).completed(UNSEEN)
    assert (life.ended, life.interrupted) == (T0 + 1800, True)


def test_an_end_that_a_pass_saw_stays(trail):
    assert trail(TERMINATE).completed(an_instance()) == an_instance()


def test_stops_are_completed_and_made_exact(trail):
    recorded = an_instance(stops=((T0 + 60, T0 + 120), (T0 + 3500, T0 + 7190)))
    assert trail(STOP, START).completed(recorded).stops == (
        (T0 + 60, T0 + 120),
        (T0 + 3600, T0 + 7200),
    )
    assert trail(STOP).completed(an_instance()).stops == ((T0 + 3600, None),)


def test_an_open_stop_of_cloudtrail_keeps_the_start_that_a_pass_saw(trail):
    recorded = an_instance(stops=((T0 + 3650, T0 + 7190), (T0 + 8000, T0 + 9000)))
    assert trail(STOP).completed(recorded).stops == (
        (T0 + 3600, T0 + 7190),
        (T0 + 8000, T0 + 9000),
    )


def test_an_end_that_a_pass_and_cloudtrail_tell_differently_is_told_with_both_values(trail):
    recorded = an_instance(ended=T0 + 36_000)
    assert told(trail(TERMINATE, EVICTED), recorded) == [
        (
            "i-1: ended 2026-11-21 20:00:00 by the instance ledger, 2026-11-21 10:30:00 by"
            " CloudTrail; billed to the former"
        ),
        (
            "i-1: end cause suspend by the instance ledger, interruption by CloudTrail; billed as"
            " the former"
        ),
    ]


def test_a_stop_that_cloudtrail_makes_exact_is_told_with_both_values(trail):
    recorded = an_instance(stops=((T0 + 7000, T0 + 7900),))
    assert told(trail(STOP, START), recorded) == [
        (
            "i-1: stopped 2026-11-21 11:56:40 by the instance ledger, 2026-11-21 11:00:00 by"
            " CloudTrail; billed by the latter"
        ),
        (
            "i-1: started 2026-11-21 12:11:40 by the instance ledger, 2026-11-21 12:00:00 by"
            " CloudTrail; billed by the latter"
        ),
    ]


def test_a_launch_that_cloudtrail_tells_differently_is_told_with_both_values(trail):
    assert told(trail(RUN), an_instance()) == [
        (
            "i-1: launched 2026-11-21 10:00:00 by the instance ledger, 2026-11-21 09:00:00 by"
            " CloudTrail; billed from the former"
        )
    ]


def test_a_launch_that_was_asked_for_twice_is_no_disagreement(trail):
    again = RUN | {"eventTime": "2026-11-21T10:00:30Z"}
    assert told(trail(RUN, again), an_instance()) == []


def test_times_within_a_minute_and_what_one_source_lacks_are_no_disagreements(trail):
    events = trail(STOP, START, TERMINATE)
    assert told(events, an_instance(ended=T0 + 10_850, stops=((T0 + 3650, T0 + 7190),))) == []
    assert told(events, UNSEEN) == []
    assert told(trail(STOP), an_instance(stops=((T0 + 3600, T0 + 7200),))) == []
    assert told(trail(START), an_instance(stops=((T0 + 3600, None),))) == []


def test_calls_that_ec2_refused_or_of_other_services_are_none(trail):
    refused = TERMINATE | {"errorCode": "Client.OperationNotPermitted", "responseElements": None}
    elsewhere = {"eventSource": "s3.amazonaws.com", "eventName": "PutObject"}
    other_call = STOP | {"eventName": "DescribeInstances", "responseElements": None}
    content = trail(refused, elsewhere, other_call)
    assert (content.events, content.set_aside) == ({}, ())
    assert content.completed(UNSEEN) == UNSEEN


def test_folders_gzipped_files_and_the_answer_of_lookup_events_are_read(tmp_path):
    (tmp_path / "2026" / "11").mkdir(parents=True)
    packed = gzip.compress(json.dumps({"Records": [STOP]}).encode())
    (tmp_path / "2026" / "11" / "a.json.gz").write_bytes(packed)
    looked_up = {"Events": [{"EventId": "1", "CloudTrailEvent": json.dumps(START)}]}
    (tmp_path / "b.json").write_text(json.dumps(looked_up))
    (tmp_path / "notes.txt").write_text("not read")
    content = cloudtrail.read([tmp_path])
    assert [event.name for event in content.events["i-1"]] == ["StopInstances", "StartInstances"]
    assert content.set_aside == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>403</html>",
        b"[]",
        b'{"Records": 3}',
        b'{"Events": [{}]}',
        b"\x1f\x8b broken",
        gzip.compress(json.dumps({"Records": []}).encode(), mtime=0)[:-9],
        b"[" * 100_000,
        b"\xff\xfe\xff",
    ],
)
def test_a_file_that_is_none_of_cloudtrails_is_set_aside_and_hides_no_other(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    (tmp_path / "b.json").write_text(json.dumps({"Records": [STOP]}))
    trail = cloudtrail.read([tmp_path])
    assert list(trail.events) == ["i-1"]
    (item,) = trail.set_aside
    assert (item.name, item.has_unknown_cost) == (str(tmp_path / "a.json"), False)


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [],
        {},
        "x",
        STOP | {"eventTime": "yesterday"},
        STOP | {"eventTime": "2026-13-41T99:00:00Z"},
        STOP | {"eventTime": 3},
        STOP | {"responseElements": None},
        STOP | {"responseElements": {"instancesSet": {"items": [{"instanceId": "=1+1"}]}}},
        STOP | {"responseElements": {"instancesSet": {"items": [{"instanceId": None}]}}},
        EVICTED | {"serviceEventDetails": {"instanceIdSet": 3}},
    ],
)
def test_a_damaged_record_is_set_aside_and_hides_no_other(trail, damaged):
    content = trail(damaged, START)
    assert content.events == {"i-1": (TrailEvent(T0 + 7200, "StartInstances"),)}
    (item,) = content.set_aside
    assert item.name.startswith("record 1 of ")


def test_a_file_larger_than_any_of_cloudtrails_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(cloudtrail, "LARGEST_FILE", 1000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2000, mtime=0))
    assert "ValueError" in cloudtrail.read([path]).set_aside[0].reason


def test_a_path_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(AccountingError, match="nowhere"):
        cloudtrail.read([tmp_path / "nowhere"])


def test_a_trail_without_events_changes_nothing():
    assert Trail().completed(UNSEEN) == UNSEEN
