"""The instance ledger: records that reconcile wrote, completed with EC2's facts."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from botocore.exceptions import ClientError

from tests.unit.accounting.samples import T0, an_instance
from toolkit.accounting import ledger
from toolkit.accounting.cloudtrail import Trail, TrailEvent
from toolkit.accounting.disagreements import MOST_SENTENCES
from toolkit.accounting.errors import LedgerError
from toolkit.accounting.set_aside import SetAside

RECORD = {
    "instance_id": "i-1",
    "node": "gpu-001",
    "pool": "gpu",
    "partition": "spot",
    "attempt": "a-1",
    "type": "g5.xlarge",
    "zone": "us-east-1a",
    "lifecycle": "spot",
    "launched_at": T0 + 0.9,
    "running_at": T0 + 5.5,
    "ended_at": T0 + 99.1,
    "end_cause": "suspend",
    "price": "0.4024",
}


def at(second):
    return datetime.fromtimestamp(second, UTC)


class FakeS3:
    """S3 objects with a time of modification, listed in pages."""

    def __init__(self, objects, refusals=()) -> None:
        self.objects = objects
        self.refusals = dict(refusals)  # S3's error codes by key

    def get_paginator(self, name):
        assert name == "list_objects_v2"
        return self

    def paginate(self, Bucket, Prefix):  # noqa: N803  # boto3's own names
        yield {}
        for key, (_, written) in self.objects.items():
            if key.startswith(Prefix):
                yield {"Contents": [{"Key": key, "LastModified": at(written)}]}

    def get_object(self, Bucket, Key):  # noqa: N803
        if Key in self.refusals:
            raise ClientError({"Error": {"Code": self.refusals[Key]}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[Key][0].encode())}


class FakeEc2:
    """EC2 with the instances that have the cluster's tag."""

    def __init__(self, *items) -> None:
        self.items = items

    def get_paginator(self, name):
        assert name == "describe_instances"
        return self

    def paginate(self, Filters):  # noqa: N803
        assert Filters == [{"Name": "tag:toolkit:cluster", "Values": ["demo"]}]
        yield {"Reservations": [{"Instances": [item]} for item in self.items]}


def describe_instance(instance_id="i-1", state="running", **changes):
    tags = {
        "toolkit:cluster": "demo",
        "toolkit:pool": "gpu",
        "toolkit:nodes": "gpu-[001-002]",
        "toolkit:price": "0.4024",
    }
    item = {
        "InstanceId": instance_id,
        "InstanceType": "g5.xlarge",
        "InstanceLifecycle": "spot",
        "LaunchTime": at(T0),
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "State": {"Name": state},
        "AmiLaunchIndex": 1,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    return item | changes


def read(records, *items, written=T0 + 500):
    texts = {
        f"ledger/instances/{record['instance_id']}.json": json.dumps(record) for record in records
    }
    return read_objects(texts, *items, written=written).instances


def read_objects(texts, *items, written=T0 + 500, refusals=()):
    objects = {key: (text, written) for key, text in texts.items()}
    return ledger.read(FakeS3(objects, refusals), "bucket", FakeEc2(*items), "demo")


def entries(*instance_ids):
    """Return the objects of instances, by key."""
    return {
        f"ledger/instances/{instance_id}.json": json.dumps(RECORD | {"instance_id": instance_id})
        for instance_id in instance_ids
    }


def test_the_life_of_a_ledger_record_is_rounded_outwards_to_seconds():
    (instance,) = read([RECORD])
    assert (instance.launched, instance.ended) == (T0, T0 + 100)
    assert instance.spot
    assert instance.tag_price == Decimal("0.4024")
    assert instance.end_cause == "suspend"


def test_an_instance_without_a_ledger_record_is_read_from_ec2():
    (instance,) = read([], describe_instance())
    assert (instance.node, instance.pool, instance.ended) == ("gpu-002", "gpu", None)


def test_the_node_tag_wins_over_the_launch_index():
    item = describe_instance()
    item["Tags"].append({"Key": "toolkit:node", "Value": "gpu-009"})
    assert read([], item)[0].node == "gpu-009"


def test_the_head_node_is_recognised_by_its_role_tag():
    item = describe_instance(Tags=[{"Key": "toolkit:role", "Value": "head"}])
    assert read([], item)[0].is_head


def test_an_instance_of_ledger_and_ec2_is_read_once():
    assert len(read([RECORD], describe_instance("i-1"), describe_instance("i-2"))) == 2


def test_ec2_supplies_a_node_that_the_record_lacks():
    assert read([RECORD | {"node": ""}], describe_instance())[0].node == "gpu-002"
    assert read([RECORD], describe_instance())[0].node == "gpu-001"


def test_ec2_supplies_an_end_that_the_record_lacks():
    open_record = RECORD | {"ended_at": None, "end_cause": None}
    ended_instance = describe_instance(
        state="terminated",
        StateTransitionReason="User initiated (2026-11-21 10:05:00 GMT)",
    )
    (instance,) = read([open_record], ended_instance)
    assert (instance.ended, instance.end_seen) == (T0 + 300, True)


def test_ec2s_state_reason_marks_an_interruption():
    reclaimed = describe_instance(
        state="terminated", StateReason={"Code": "Server.SpotInstanceTermination"}
    )
    (instance,) = read([RECORD], reclaimed)
    assert instance.interrupted


def test_an_instance_without_a_known_end_was_last_seen_when_its_record_was_written():
    open_record = RECORD | {"ended_at": None, "end_cause": None}
    for items in ((), (describe_instance(state="terminated"),)):
        (instance,) = read([open_record], *items)
        assert (instance.ended, instance.end_seen, instance.seen_at) == (None, False, T0 + 500)


def test_an_end_that_no_pass_has_seen_is_marked():
    (instance,) = read([RECORD | {"end_seen": False}])
    assert (instance.ended, instance.end_seen) == (T0 + 100, False)


def test_ec2_knows_more_of_an_end_than_a_pass_that_noticed_it_late():
    unseen_end = RECORD | {"end_seen": False, "ended_at": T0 + 99_999.0}
    assert read([unseen_end], describe_instance())[0].ended is None
    ended_instance = describe_instance(
        state="terminated",
        StateTransitionReason="User initiated (2026-11-21 10:05:00 GMT)",
    )
    (instance,) = read([unseen_end], ended_instance)
    assert (instance.ended, instance.end_seen) == (T0 + 300, True)


def test_a_running_instance_has_no_end():
    (instance,) = read([RECORD | {"ended_at": None, "end_cause": None}], describe_instance())
    assert (instance.ended, instance.end_seen) == (None, True)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"instance_id": "i-1"}', json.dumps(RECORD | {"launched_at": "x"})]
)
def test_an_unreadable_ledger_record_is_an_error_that_names_it(text):
    with pytest.raises(LedgerError, match=r"ledger/instances/i-1\.json"):
        ledger.parse(text, "ledger/instances/i-1.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        json.dumps(RECORD).replace(str(RECORD["launched_at"]), "1e999"),
        json.dumps(RECORD).replace(str(RECORD["ended_at"]), "NaN"),
        json.dumps(RECORD | {"launched_at": 0}),
        json.dumps(RECORD | {"ended_at": -5.0}),
        json.dumps(RECORD | {"node": ["gpu-001"]}),
    ],
)
def test_an_unreadable_object_is_set_aside_and_hides_no_other(text):
    content = read_objects(
        {"ledger/instances/i-0.json": text, "ledger/instances/i-1.json": json.dumps(RECORD)}
    )
    assert [instance.instance_id for instance in content.instances] == ["i-1"]
    assert content.set_aside == (
        SetAside("ledger/instances/i-0.json", "no record of an instance", has_unknown_cost=True),
    )


def test_an_unreadable_object_has_no_unknown_cost_if_ec2_knows_its_instance():
    content = read_objects({"ledger/instances/i-1.json": "{}"}, describe_instance("i-1"))
    assert [instance.instance_id for instance in content.instances] == ["i-1"]
    assert not content.set_aside[0].has_unknown_cost


@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchKey", "KMS.DisabledException"])
def test_an_object_that_s3_refuses_is_set_aside_and_hides_no_other(code):
    refused = "ledger/instances/i-0.json"
    content = read_objects(entries("i-0", "i-1", "i-2"), refusals={refused: code})
    assert [instance.instance_id for instance in content.instances] == ["i-1", "i-2"]
    assert content.set_aside == (
        SetAside(refused, f"S3 refuses it ({code})", has_unknown_cost=True),
    )
    (alone,) = read_objects(entries("i-0"), refusals={refused: code}).set_aside
    assert alone.name == refused


def test_a_refused_object_has_no_unknown_cost_if_ec2_knows_its_instance():
    refusals = {"ledger/instances/i-1.json": "AccessDenied"}
    content = read_objects(entries("i-1"), describe_instance("i-1"), refusals=refusals)
    assert [instance.instance_id for instance in content.instances] == ["i-1"]
    assert not content.set_aside[0].has_unknown_cost


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "KMS.ThrottlingException", "SlowDown", "NoSuchBucket"]
)
def test_an_error_that_concerns_more_than_an_object_ends_the_reading(code):
    with pytest.raises(ClientError, match=code):
        read_objects(entries("i-0", "i-1"), refusals={"ledger/instances/i-0.json": code})


def test_credentials_that_may_read_none_of_several_objects_end_the_reading():
    objects = entries("i-0", "i-1")
    with pytest.raises(ClientError, match="AccessDenied"):
        read_objects(objects, refusals=dict.fromkeys(objects, "AccessDenied"))


def test_a_launch_or_an_end_that_ledger_and_ec2_tell_differently_is_told_with_both_values():
    restarted = describe_instance(
        state="terminated",
        AmiLaunchIndex=0,
        LaunchTime=at(T0 + 43_200),
        StateTransitionReason="User initiated (2026-11-22 10:00:00 GMT)",
    )
    content = read_objects({"ledger/instances/i-1.json": json.dumps(RECORD)}, restarted)
    launch, end = content.disagreements
    assert (
        "launched 2026-11-21 10:00:00 by the instance ledger, 2026-11-21 22:00:00 by EC2" in launch
    )
    assert "ended 2026-11-21 10:01:40 by the instance ledger, 2026-11-22 10:00:00 by EC2" in end
    assert (
        read_objects(
            {"ledger/instances/i-1.json": json.dumps(RECORD)}, describe_instance(AmiLaunchIndex=0)
        ).disagreements
        == ()
    )


def test_a_type_a_lifecycle_and_a_node_that_differ_are_told_with_both_values():
    described = describe_instance(
        InstanceType="g5.2xlarge", Tags=[{"Key": "toolkit:node", "Value": "gpu-007"}]
    )
    del described["InstanceLifecycle"]
    content = read_objects({"ledger/instances/i-1.json": json.dumps(RECORD)}, described)
    assert content.disagreements == (
        "i-1: type g5.xlarge by the instance ledger, g5.2xlarge by EC2; billed as the former",
        "i-1: lifecycle spot by the instance ledger, on-demand by EC2; billed as the former",
        (
            "i-1: node gpu-001 by the instance ledger, gpu-007 by EC2; jobs are looked for on the"
            " former"
        ),
    )


def test_a_node_that_an_instance_was_given_since_its_record_is_ec2s():
    described = describe_instance(Tags=[{"Key": "toolkit:node", "Value": "gpu-007"}])
    record = RECORD | {"ended_at": None, "end_cause": None}
    content = read_objects({"ledger/instances/i-1.json": json.dumps(record)}, described)
    assert [instance.node for instance in content.instances] == ["gpu-007"]
    (sentence,) = content.disagreements
    assert sentence.endswith("gpu-007 by EC2; jobs are looked for on the latter")


def test_many_disagreements_with_ec2_are_counted():
    ids = [f"i-{number}" for number in range(30)]
    content = read_objects(
        entries(*ids),
        *(describe_instance(name, AmiLaunchIndex=0, InstanceType="g5.2xlarge") for name in ids),
    )
    assert len(content.disagreements) == MOST_SENTENCES + 1
    assert content.disagreements[-1] == "and 10 more of these"


@pytest.mark.parametrize(
    ("record_end", "description", "source"),
    [
        (RECORD["ended_at"], None, "the instance ledger"),
        (None, "2026-11-21 10:01:40 GMT", "EC2"),
    ],
)
def test_cloudtrail_changes_no_end_that_was_seen_and_says_whose_it_is(
    record_end, description, source
):
    record = RECORD | {"ended_at": record_end}
    items = [
        describe_instance(
            state="terminated",
            AmiLaunchIndex=0,
            StateTransitionReason=f"User initiated ({end})",
        )
        for end in [description]
        if end
    ]
    content = ledger.read(
        FakeS3({"ledger/instances/i-1.json": (json.dumps(record), T0)}),
        "bucket",
        FakeEc2(*items),
        "demo",
        trail=Trail({"i-1": (TrailEvent(T0 + 18_000, "TerminateInstances"),)}),
    )
    (instance,) = content.instances
    assert instance.ended == T0 + 100
    assert content.disagreements == (
        (
            f"i-1: ended 2026-11-21 10:01:40 by {source}, 2026-11-21 15:00:00 by CloudTrail; billed"
            " to the former"
        ),
    )


def test_only_what_lived_in_the_window_disagrees_with_cloudtrail():
    record = ledger.Record(ledger.parse(json.dumps(RECORD), "k"), "k", T0)
    trail = Trail({"i-1": (TrailEvent(T0 + 18_000, "TerminateInstances"),)})

    def told(window):
        return ledger.combine([record], (), (), trail=trail, window=window).disagreements

    assert (len(told((T0, T0 + 50))), told((T0 + 5000, T0 + 9000))) == (1, ())


@pytest.mark.parametrize("copy", ["ledger/instances/a.json", "ledger/instances/old/i-1.json"])
def test_a_copy_of_a_record_is_not_counted_again(copy):
    original = "ledger/instances/i-1.json"
    content = read_objects(
        {copy: json.dumps(RECORD | {"zone": "us-east-1b"}), original: json.dumps(RECORD)}
    )
    (instance,) = content.instances
    assert instance.zone == "us-east-1a"
    (item,) = content.set_aside
    assert (item.name, item.has_unknown_cost) == (copy, False)


def test_a_record_under_another_key_is_counted_if_it_is_the_only_one():
    content = read_objects({"ledger/instances/moved.json": json.dumps(RECORD)})
    assert [instance.instance_id for instance in content.instances] == ["i-1"]
    assert content.set_aside == ()


def test_a_price_tag_without_a_number_is_ignored():
    assert ledger.parse(json.dumps(RECORD | {"price": ""}), "k").tag_price is None
    for price in ("cheap", "NaN", "Infinity", "1e40", "-1"):
        assert ledger.parse(json.dumps(RECORD | {"price": price}), "k").tag_price is None


def test_the_ledger_entry_of_reconcile_is_parsed_unchanged():
    from slurmplugins.reconciler.instance_ledger import LedgerEntry, to_json

    entry = LedgerEntry(**RECORD)
    assert ledger.parse(json.dumps(to_json(entry)), "k") == an_instance(
        ended=T0 + 100, running=T0 + 5
    )


@pytest.mark.parametrize("key", ["node", "pool", "partition", "attempt", "zone", "price"])
def test_a_record_of_an_older_head_may_lack_a_field_or_hold_null(key):
    lacking = {name: value for name, value in RECORD.items() if name != key}
    nulled = RECORD | {key: None}
    assert ledger.parse(json.dumps(lacking), "k") == ledger.parse(json.dumps(nulled), "k")
