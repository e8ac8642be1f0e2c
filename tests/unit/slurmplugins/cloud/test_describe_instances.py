"""The fast reader of DescribeInstances, compared with botocore's parser.

Both agree. No code needs a field that the fast reader skips.
"""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config as BotoConfig

from slurmplugins.cloud import describe_instances, ec2_messages
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.errors import Throttled

XML = """<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
<requestId>x</requestId><reservationSet><item><reservationId>r-1</reservationId><groupSet/>
<instancesSet><item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name>
</instanceState><reason/><amiLaunchIndex>1</amiLaunchIndex><instanceType>g5.xlarge</instanceType>
<launchTime>2026-11-21T10:00:00.000Z</launchTime><placement><availabilityZone>us-east-1a
</availabilityZone><groupName/></placement><privateIpAddress>10.0.0.1</privateIpAddress>
<blockDeviceMapping><item><x/></item></blockDeviceMapping><networkInterfaceSet><item/>
</networkInterfaceSet><networkInterfaceSet/><instanceLifecycle>spot</instanceLifecycle><tagSet><item><key>toolkit:cluster</key><value>demo
</value></item><item><key>toolkit:nodes</key><value>gpu-[001-002]</value></item><item><key>empty
</key><value/></item></tagSet></item><item><instanceId>i-2</instanceId><instanceState><code>48
</code><name>terminated</name></instanceState><reason>User initiated (2026-11-21 11:00:00 GMT)
</reason><amiLaunchIndex>0</amiLaunchIndex><instanceType>g5.xlarge</instanceType><launchTime>
2026-11-21T10:00:00Z</launchTime><stateReason><code>Server.SpotInstanceTermination</code><message>
gone</message></stateReason><placement/></item></instancesSet></item></reservationSet>
<nextToken>more</nextToken></DescribeInstancesResponse>"""
BODY = XML.replace("\n", "").encode()


@pytest.fixture
def client() -> Any:
    """A boto3 client that gets XML answers without a socket."""
    made = boto3.client(
        "ec2",
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=BotoConfig(retries={"total_max_attempts": 1}),
    )
    made.answer = (200, BODY)

    def send(request: Any, **_: Any) -> AWSResponse:
        status, body = made.answer
        answer = AWSResponse(request.url, status, {}, None)
        answer._content = body
        return answer

    made.meta.events.register("before-send.ec2.DescribeInstances", send)
    return made


def test_the_parser_agrees_with_botocore_in_every_field_it_reads(client: Any):
    theirs = client.describe_instances()
    describe_instances.attach(client)
    describe_instances.attach(client)
    ours = client.describe_instances()
    assert ours["NextToken"] == theirs["NextToken"] == "more"
    (mine,), (other,) = ours["Reservations"], theirs["Reservations"]
    for one, two in zip(mine["Instances"], other["Instances"], strict=True):
        assert ec2_messages.instance(one) == ec2_messages.instance(two)
        assert one.keys() <= describe_instances.READ_FIELDS
        for key, value in one.items():
            theirs_too = two[key]
            if isinstance(value, dict):  # The fast reader skips some of its fields.
                theirs_too = {inner: theirs_too[inner] for inner in value}
            assert value == theirs_too, key


class Recorder(dict[str, Any]):
    """A dict that records the keys that are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def test_an_instance_is_made_only_of_fields_that_the_parser_reads():
    for item in describe_instances.read(BODY)["Reservations"][0]["Instances"]:
        recorder = Recorder(item)
        ec2_messages.instance(recorder)
        assert recorder.asked <= describe_instances.READ_FIELDS


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<",
        BODY.replace(b"2026-11-21T10:00:00.000Z", b"soon"),
        BODY.replace(b"DescribeInstancesResponse", b"Response"),
        BODY.replace(b"</tagSet>", b""),
        BODY.replace(b"<tagSet>", b"<tagSet >"),
        BODY.replace(b"gpu-[001-002]", b"<![CDATA[<groupSet></groupSet>]]>"),
        BODY.replace(b"<tagSet>", b"<!-- <groupSet> --><tagSet>"),
        BODY.replace(b"<key>empty", b"<key>empty</tagSet>"),
        BODY.replace(
            b"<DescribeInstancesResponse xmlns", b'<DescribeInstancesResponse a="b" xmlns'
        ),
    ],
)
def test_an_answer_that_the_parser_can_not_read_is_left_to_botocore(body: bytes):
    answer: dict[str, Any] = {"status_code": 200, "body": body}
    found: dict[str, Any] = {}
    describe_instances._use_fast_reader(answer, found)
    assert (answer["body"], found) == (body, {})


def test_botocore_reads_error_answers(client: Any):
    describe_instances.attach(client)
    client.answer = (
        400,
        (
            b"<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message></Error>"
            b"</Errors><RequestID>x</RequestID></Response>"
        ),
    )
    with pytest.raises(Throttled):
        Ec2("demo", lambda: client)._call("describe_instances")


def test_a_tag_that_spells_an_element_is_only_a_tag():
    value = b"&lt;networkInterfaceSet&gt;&lt;/instancesSet&gt;"
    found = describe_instances.read(BODY.replace(b"gpu-[001-002]", value))
    tags = found["Reservations"][0]["Instances"][0]["Tags"]
    assert tags[1]["Value"] == "<networkInterfaceSet></instancesSet>"


def machine(number: int, tags: str) -> str:
    return f"""
      <item>
        <instanceId>i-{number}</instanceId>
        {tags}
      </item>"""


def tag_set(value: str) -> str:
    return f"""<tagSet>
          <item>
            <key>toolkit:pool</key>
            <value>{value}</value>
          </item>
        </tagSet>"""


def test_each_instance_has_tags_of_its_own_though_others_have_equal_ones():
    wanted = ["gpu", "farm", None, "gpu", "\N{GREEK SMALL LETTER PI}", None, "farm"]
    machines = [
        machine(number, "<tagSet/>" if value is None else tag_set(value))
        for number, value in enumerate(wanted)
    ]
    text = "".join(
        [
            '<DescribeInstancesResponse xmlns="x"><reservationSet><item><instancesSet>',
            *machines,
            "</instancesSet></item></reservationSet></DescribeInstancesResponse>",
        ]
    )
    (reservation,) = describe_instances.read(text.encode())["Reservations"]
    found = {item["InstanceId"]: item.get("Tags") for item in reservation["Instances"]}
    assert found == {
        f"i-{number}": None if value is None else [{"Key": "toolkit:pool", "Value": value}]
        for number, value in enumerate(wanted)
    }
