"""The local cloud's meter, and `toolkit local invoice`."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pytest
from click.testing import CliRunner

from tests.contract.local.localcloud import started
from tests.contract.local.test_local_instances import lustre_group
from toolkit.commands.local import local as command
from toolkit.local.billing.usage_log import Kind, UsageLog


@pytest.fixture
def log(local):
    return UsageLog(local.cloud.options.state)


def states(log, instance_id):
    return [event.state for event in log.read() if event.resource_id == instance_id]


def test_each_state_of_an_instance_is_metered_with_what_its_price_depends_on(
    local, ec2, launch, spot, log
):
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "toolkit:cluster", "Value": "demo"}]}]
    (instance,) = launch(TagSpecifications=tags, **spot)
    local.settle()
    ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    local.settle()
    assert states(log, instance["InstanceId"]) == [
        "pending", "running", "shutting-down", "terminated",
    ]  # fmt: skip
    last = [event for event in log.read() if event.resource_id == instance["InstanceId"]][-1]
    assert (last.market, last.type, last.zone) == ("spot", "g5.xlarge", "us-east-1a")
    assert last.tags["toolkit:cluster"] == "demo"


def test_a_stop_and_a_start_are_metered_and_the_launch_time_moves(local, ec2, launch, show, log):
    instance_id = launch()[0]["InstanceId"]
    local.settle()
    launched = show(instance_id)["LaunchTime"]
    ec2.stop_instances(InstanceIds=[instance_id])
    local.settle()
    local.pass_time(600)
    ec2.start_instances(InstanceIds=[instance_id])
    local.settle()
    assert states(log, instance_id) == [
        "pending", "running", "stopping", "stopped", "pending", "running",
    ]  # fmt: skip
    assert (show(instance_id)["LaunchTime"] - launched).total_seconds() >= 600


def test_ec2_tells_the_moment_in_which_it_took_an_instance_and_goes_on_telling_it(
    local, launch, show, control, log
):
    instance_id = launch(InstanceMarketOptions={"MarketType": "spot"})[0]["InstanceId"]
    local.settle()
    control.post("interrupt", {"target": instance_id, "notice": 0})
    local.settle()
    told = show(instance_id)["StateTransitionReason"]
    assert told.startswith("Service initiated (")
    assert told.endswith(" GMT)")
    local.pass_time(60)
    assert show(instance_id)["StateTransitionReason"] == told
    (end,) = [event for event in log.read() if event.state == "shutting-down"]
    assert end.reason == "Server.SpotInstanceTermination"


def test_volumes_are_metered_with_their_size_and_tags_until_they_are_deleted(ec2, log):
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "toolkit:cluster", "Value": "demo"}]}]
    volume = ec2.create_volume(
        AvailabilityZone="us-east-1a", Size=8, VolumeType="gp3", TagSpecifications=tags
    )["VolumeId"]
    ec2.modify_volume(VolumeId=volume, Size=16)
    ec2.delete_volume(VolumeId=volume)
    events = [event for event in log.read() if event.kind is Kind.VOLUME]
    assert (events[0].gib, events[-1].gib, events[-1].state) == (8, 16, "deleted")
    assert {event.type for event in events} == {"gp3"}
    assert events[-1].tags == {"toolkit:cluster": "demo"}


def test_a_root_volume_is_billed_until_its_instance_is_terminated(local, ec2, launch, log):
    instance_id = launch()[0]["InstanceId"]
    local.settle()
    ec2.terminate_instances(InstanceIds=[instance_id])
    local.settle()
    volumes = [event.state for event in log.read() if event.kind is Kind.VOLUME]
    assert (volumes[0], volumes[-1]) == ("available", "deleted")


def test_a_file_system_is_metered_until_it_is_deleted(local, ec2, subnet, log):
    fsx = local.client("fsx")
    file_system = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[subnet],
        SecurityGroupIds=[lustre_group(ec2, subnet, (988, 988), (1018, 1023))],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
        Tags=[{"Key": "toolkit:cluster", "Value": "demo"}],
    )["FileSystem"]["FileSystemId"]
    fsx.delete_file_system(FileSystemId=file_system)
    events = [event for event in log.read() if event.kind is Kind.FILE_SYSTEM]
    assert [(event.state, event.gib, event.type) for event in events] == [
        ("available", 1200, "PERSISTENT_2.125"),
        ("deleted", 1200, "PERSISTENT_2.125"),
    ]
    assert events[0].tags == {"toolkit:cluster": "demo"}


def test_a_full_disk_stops_the_meter_and_not_the_cloud(local, launch, show, log, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(UsageLog, "append", full)
    instance_id = launch()[0]["InstanceId"]
    local.settle()
    assert show(instance_id)["State"]["Name"] == "running"
    assert states(log, instance_id) == []


def run(state, *words):
    result = CliRunner().invoke(command, ["invoice", *words, "--state", str(state)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_the_command_bills_what_an_ended_cloud_has_run(tmp_path):
    state = tmp_path / "cloud"
    state.mkdir()
    with started(state) as local:
        local.wall.offset = -600.0  # the first daemon's time is past
        subnet = local.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
        local.client("ec2").run_instances(
            ImageId=local.image, InstanceType="g5.xlarge", MinCount=2, MaxCount=2, SubnetId=subnet
        )
        local.settle()
    with started(state):  # a new daemon ends what the last one left
        pass
    whole = json.loads(run(state, "--json", "--until", "2040-01-01"))
    amounts = [Decimal(line["cost"]) for line in whole["lines"] if line["kind"] == "instance"]
    assert sum(amounts) >= 2 * Decimal("1.006") / 6 - Decimal("0.000001")
    assert sum(Decimal(line["cost"]) for line in whole["lines"]) == Decimal(whole["total"])
    export = tmp_path / "cur.csv"
    rows = list(csv.DictReader(io.StringIO(run(state, "--csv", "--cur", str(export)))))
    assert len(rows) == len(list(csv.DictReader(io.StringIO(export.read_text()))))
    assert "total: " in run(state, "--granularity", "daily")
    assert json.loads(run(state, "--json", "--until", "2020-01-01", "--since", "2019-01-01")) == {
        "since": 1546300800, "until": 1577836800, "total": "0", "resources": {}, "lines": [],
    }  # fmt: skip
