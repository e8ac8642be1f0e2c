"""The fault drills of the local cloud: capacity, partial fleets, throttles, interruptions."""

# ruff: noqa: S310 - every URL here is the test's own endpoint

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from toolkit.errors import LocalError


def code(caught):
    return caught.value.response["Error"]["Code"]


def test_an_exhausted_pool_refuses_with_a_server_error_until_restored(control, launch, spot):
    control.post("exhaust", {"pool": "g5.xlarge/us-east-1a/spot"})
    with pytest.raises(ClientError) as caught:
        launch(**spot)
    assert code(caught) == "InsufficientInstanceCapacity"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert launch(), "on-demand is another pool"
    control.post("exhaust", {"restore": True})
    assert launch(**spot)


def test_a_launch_gets_as_many_instances_as_the_pool_has_between_its_two_counts(control, launch):
    control.post("exhaust", {"pool": "g5.xlarge", "free": 3})
    with pytest.raises(ClientError):
        launch(4)
    assert len(launch(MinCount=1, MaxCount=10)) == 3
    with pytest.raises(ClientError):
        launch(1)


def test_a_refused_launch_takes_nothing_from_the_pool(control, launch):
    control.post("exhaust", {"pool": "g5.xlarge", "free": 1})
    with pytest.raises(ClientError):
        launch(SecurityGroupIds=["sg-00000000"])
    assert launch()


def test_an_exhaustion_ends_after_its_seconds(local, control, launch):
    control.post("exhaust", {"pool": "g5.xlarge", "seconds": 60})
    with pytest.raises(ClientError):
        launch()
    local.pass_time(61)
    assert launch()


def instance_count(answer):
    return sum(len(one["InstanceIds"]) for one in answer["Instances"])


def test_a_fleet_takes_its_cheapest_offering(fleet, ec2):
    answer = fleet(3, TagSpecifications=[{"ResourceType": "instance", "Tags": [TAG]}])
    assert instance_count(answer) == 3
    assert not answer["Errors"]
    assert answer["Instances"][0]["InstanceType"] == "g5.xlarge"
    assert answer["Instances"][0]["Lifecycle"] == "spot"
    ids = answer["Instances"][0]["InstanceIds"]
    instance = ec2.describe_instances(InstanceIds=ids)["Reservations"][0]["Instances"][0]
    tags = {one["Key"]: one["Value"] for one in instance["Tags"]}
    assert tags["toolkit:cluster"] == "demo"
    assert tags["aws:ec2:fleet-id"] == answer["FleetId"]


TAG = {"Key": "toolkit:cluster", "Value": "demo"}


def test_a_fleet_spreads_over_pools_and_names_each_without_capacity(fleet, control):
    control.post("exhaust", {"pool": "g5.xlarge/us-east-1a/spot", "free": 1})
    control.post("exhaust", {"pool": "g5.xlarge/us-east-1b/spot", "free": 1})
    control.post("exhaust", {"pool": "g5.2xlarge/*/spot", "free": 1})
    answer = fleet(5)
    assert instance_count(answer) == 3
    assert {one["ErrorCode"] for one in answer["Errors"]} == {"InsufficientInstanceCapacity"}
    assert len(answer["Errors"]) == 4


def test_a_fleet_below_its_minimum_launches_nothing(fleet, control, local):
    control.post("exhaust", {"pool": "spot", "free": 2})
    options = {"MinTargetCapacity": 3, "SingleInstanceType": True, "SingleAvailabilityZone": True}
    answer = fleet(3, options=options)
    assert instance_count(answer) == 0
    assert answer["Errors"]
    assert not local.instances()


def test_a_fleet_in_a_single_zone_takes_a_zone_that_has_all(fleet, control):
    control.post("exhaust", {"pool": "*/us-east-1a/spot", "free": 1})
    options = {"MinTargetCapacity": 3, "SingleInstanceType": True, "SingleAvailabilityZone": True}
    answer = fleet(3, options=options)
    assert instance_count(answer) == 3
    zones = {
        one["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"]
        for one in answer["Instances"]
    }
    assert zones == {"us-east-1b"}


def test_a_fleet_call_with_the_same_client_token_returns_the_same_fleet(fleet, local):
    assert fleet(2, ClientToken="f")["FleetId"] == fleet(2, ClientToken="f")["FleetId"]
    assert len(local.instances()) == 2


def test_a_fleet_reports_each_error_code_of_its_offerings(fleet, control):
    control.post("exhaust", {"pool": "g5.xlarge"})
    answer = fleet(1, types=("g5.xlarge", "g5.gigantic"))
    assert {one["ErrorCode"] for one in answer["Errors"]} == {
        "InsufficientInstanceCapacity",
        "InvalidParameterValue",
    }


def test_a_throttle_refuses_as_many_calls_as_it_counts(control, ec2, launch):
    control.post("throttle", {"action": "RunInstances", "count": 2})
    for _ in range(2):
        with pytest.raises(ClientError) as caught:
            launch()
        assert code(caught) == "RequestLimitExceeded"
    assert launch()
    assert ec2.describe_instances()["Reservations"]


def test_any_code_can_be_injected_and_cleared(control, local):
    control.post("throttle", {"action": "Get*", "code": "AccessDeniedException"})
    secrets = local.client("secretsmanager")
    with pytest.raises(ClientError) as caught:
        secrets.get_secret_value(SecretId="x")
    assert code(caught) == "AccessDeniedException"
    control.post("throttle", {"clear": True})
    with pytest.raises(ClientError) as caught:
        secrets.get_secret_value(SecretId="x")
    assert code(caught) == "ResourceNotFoundException"


def test_a_launch_whose_answer_is_lost_is_carried_out(control, local, launch):
    control.post("throttle", {"action": "RunInstances", "count": 1, "lost": True})
    with pytest.raises((BotoCoreError, ClientError)):
        launch(2, ClientToken="t")
    assert len(local.instances()) == 2
    again = launch(2, ClientToken="t")
    assert {one["InstanceId"] for one in again} == {instance.id for instance in local.instances()}


NODES = {"Key": "toolkit:nodes", "Value": "gpu-[001-003]"}


@pytest.fixture
def nodes(local, launch, spot):
    tags = [{"ResourceType": "instance", "Tags": [NODES]}]
    instances = launch(
        3, TagSpecifications=tags, MetadataOptions={"HttpTokens": "required"}, **spot
    )
    local.settle()
    return [one["InstanceId"] for one in instances]


class Imds:
    """The metadata service, as one instance reads it."""

    def __init__(self, local, instance_id) -> None:
        self.base = f"{local.endpoint}/_imds/{instance_id}"
        self.token = None

    def request(self, path, method="GET", headers=None):
        head = dict(headers or {})
        if self.token:
            head["X-aws-ec2-metadata-token"] = self.token
        request = urllib.request.Request(f"{self.base}{path}", method=method, headers=head)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""

    def login(self, ttl="60"):
        ttl_header = {"X-aws-ec2-metadata-token-ttl-seconds": ttl}
        status, token = self.request("/latest/api/token", "PUT", ttl_header)
        self.token = token if status == 200 else None
        return status


def test_an_interruption_notice_is_in_the_metadata_before_the_instance_is_terminated(
    local, control, nodes, show
):
    imds = Imds(local, nodes[1])
    imds.login()
    assert imds.request("/latest/meta-data/spot/instance-action")[0] == 404
    answer = control.post("interrupt", {"target": "gpu-002", "notice": 120})
    assert answer["instance_id"] == nodes[1]
    notice = json.loads(imds.request("/latest/meta-data/spot/instance-action")[1])
    assert notice == {"action": "terminate", "time": answer["notice"]}
    assert imds.request("/latest/meta-data/spot/termination-time")[1] == answer["notice"]
    assert imds.request("/latest/meta-data/events/recommendations/rebalance")[0] == 200
    local.pass_time(110)
    assert show(nodes[1])["State"]["Name"] == "running"
    local.pass_time(11)
    terminated = show(nodes[1])
    assert terminated["State"]["Name"] == "terminated"
    assert terminated["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert show(nodes[0])["State"]["Name"] == "running"


def test_a_second_interruption_notice_does_not_postpone_the_termination(local, control, nodes):
    first = control.post("interrupt", {"target": nodes[0], "notice": 10})
    assert (
        control.post("interrupt", {"target": nodes[0], "notice": 120})["notice"] == first["notice"]
    )


def test_eventbridge_announces_the_interruption(local, control, nodes):
    events, sqs = local.client("events"), local.client("sqs")
    url = sqs.create_queue(QueueName="notices")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
    events.put_rule(Name="r", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="r", Targets=[{"Id": "q", "Arn": arn["QueueArn"]}])
    control.post("interrupt", {"target": nodes[0]})
    message = json.loads(sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"])
    assert message["detail"] == {"instance-id": nodes[0], "instance-action": "terminate"}


@pytest.mark.parametrize("target", ["gpu-009", "i-00000000000000000", "gpu-[001-003]"])
def test_an_interruption_of_an_unknown_target_is_refused(control, nodes, target):
    with pytest.raises(LocalError, match="no live instance"):
        control.post("interrupt", {"target": target})


def test_an_on_demand_instance_is_not_interrupted(control, local, launch):
    instance_id = launch()[0]["InstanceId"]
    with pytest.raises(LocalError, match="on-demand"):
        control.post("interrupt", {"target": instance_id})


def test_the_metadata_service_requires_a_valid_token_of_the_same_instance(local, nodes):
    own_metadata, other_metadata = Imds(local, nodes[0]), Imds(local, nodes[1])
    assert own_metadata.request("/latest/meta-data/instance-id")[0] == 401
    assert own_metadata.login("60") == 200
    assert own_metadata.request("/latest/meta-data/instance-id") == (200, nodes[0])
    other_metadata.token = own_metadata.token
    assert other_metadata.request("/latest/meta-data/instance-id")[0] == 401
    own_metadata.token += "x"
    assert own_metadata.request("/latest/meta-data/instance-id")[0] == 401
    own_metadata.token = None
    assert own_metadata.login("60") == 200
    local.wall.offset += 61
    assert own_metadata.request("/latest/meta-data/instance-id")[0] == 401


@pytest.mark.parametrize("ttl", ["0", "21601", "x", "-1"])
def test_a_metadata_token_requires_a_lifetime_that_aws_allows(local, nodes, ttl):
    assert Imds(local, nodes[0]).login(ttl) == 400


def test_a_forwarded_request_gets_no_metadata_token(local, nodes):
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60", "X-Forwarded-For": "10.0.0.1"}
    assert Imds(local, nodes[0]).request("/latest/api/token", "PUT", headers)[0] == 403


def test_the_whole_metadata_tree_can_be_read_as_cloud_init_reads_it(local, nodes):
    imds = Imds(local, nodes[2])
    imds.login()

    def crawl(path):
        status, text = imds.request(path)
        assert status == 200, path
        tree = {}
        for name in text.splitlines():
            if name.endswith("/"):
                tree[name[:-1]] = crawl(path + name)
            else:
                status, tree[name] = imds.request(path + name)
                assert status == 200, path + name
        return tree

    for version in ("latest", "2021-03-23", "2009-04-04"):
        data = crawl(f"/{version}/meta-data/")
        assert data["instance-id"] == nodes[2]
        assert data["ami-launch-index"] == "2"
        assert data["instance-life-cycle"] == "spot"
        assert data["placement"]["region"] == "us-east-1"
        (nic,) = data["network"]["interfaces"]["macs"].values()
        assert nic["local-ipv4s"] == data["local-ipv4"]
        assert nic["subnet-ipv4-cidr-block"] == "10.42.1.0/24"
    document = json.loads(imds.request("/latest/dynamic/instance-identity/document")[1])
    assert document["instanceId"] == nodes[2]
    assert imds.request("/latest/user-data")[0] == 404
    assert imds.request("/1999-01-01/meta-data/")[0] == 404


def test_instance_tags_are_in_the_metadata_only_if_the_launch_enables_them(local, launch):
    tags = [{"ResourceType": "instance", "Tags": [NODES]}]
    with_tags = launch(TagSpecifications=tags, MetadataOptions={"InstanceMetadataTags": "enabled"})[
        0
    ]
    without_tags = launch(TagSpecifications=tags)[0]
    path = "/latest/meta-data/tags/instance/toolkit:nodes"
    assert Imds(local, with_tags["InstanceId"]).request(path) == (200, "gpu-[001-003]")
    assert Imds(local, without_tags["InstanceId"]).request(path)[0] == 404


def test_boto3_finds_its_credentials_in_the_instance_metadata(local, launch, monkeypatch, tmp_path):
    import boto3

    iam = local.client("iam")
    iam.create_role(RoleName="node", AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="node")
    iam.add_role_to_instance_profile(InstanceProfileName="node", RoleName="node")
    instance_id = launch(
        IamInstanceProfile={"Name": "node"}, MetadataOptions={"HttpTokens": "required"}
    )[0]["InstanceId"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{local.endpoint}/_imds/{instance_id}")
    credentials = boto3.Session().get_credentials()
    assert credentials.method == "iam-role"
    first = credentials.get_frozen_credentials().access_key
    assert first.startswith("ASIA")
    assert boto3.Session().get_credentials().get_frozen_credentials().access_key == first
    local.wall.offset += 3600
    assert boto3.Session().get_credentials().get_frozen_credentials().access_key != first


def test_status_lists_instances_with_their_nodes_and_the_limits_in_force(control, nodes):
    control.post("exhaust", {"pool": "spot", "free": 1})
    facts = control.get("status")
    assert [one["node"] for one in facts["instances"]] == ["gpu-001", "gpu-002", "gpu-003"]
    assert facts["limits"] == [{"pool": "*/*/spot", "free": 1}]


def test_the_control_api_refuses_a_post_without_json_content_type(local):
    request = urllib.request.Request(
        f"{local.endpoint}/_toolkit/shutdown", data=b"{}", method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value:
        assert caught.value.code == 400


def test_machines_reach_neither_the_control_api_nor_the_metadata_of_another(local, nodes):
    from werkzeug.test import Client as Wsgi

    inside = Wsgi(local.cloud.endpoint)
    assert inside.get("/_toolkit/status").status_code == 403
    assert b"instance-id" not in inside.get(f"/_imds/{nodes[0]}/latest/meta-data/").data
