"""Launching and terminating instances of the local cloud, as boto3 sees it."""

from __future__ import annotations

import base64

import pytest
from botocore.exceptions import ClientError

from tests.contract.local.localcloud import started


def code(caught):
    return caught.value.response["Error"]["Code"]


def test_an_instance_is_pending_until_its_machine_runs(local, launch, show):
    instance = launch()[0]
    assert instance["State"]["Name"] == "pending"
    assert show(instance["InstanceId"])["State"]["Name"] == "pending"
    local.settle()
    assert show(instance["InstanceId"])["State"]["Name"] == "running"


@pytest.mark.parametrize("local_options", [{"boot_delay": 30.0}])
def test_an_instance_is_pending_for_the_boot_delay(local, launch, show):
    instance = launch()[0]
    for _ in range(5):
        local.cloud.machine_controller.tick()
    assert show(instance["InstanceId"])["State"]["Name"] == "pending"
    local.pass_time(31)
    assert show(instance["InstanceId"])["State"]["Name"] == "running"


def test_the_launch_index_counts_within_one_launch(launch):
    assert [one["AmiLaunchIndex"] for one in launch(3)] == [0, 1, 2]


def test_terminate_passes_through_shutting_down_and_frees_the_address(local, ec2, launch, show):
    instance = launch()[0]
    local.settle()
    answer = ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])["TerminatingInstances"][
        0
    ]
    assert answer["PreviousState"]["Name"] == "running"
    assert answer["CurrentState"]["Name"] == "shutting-down"
    local.settle()
    terminated = show(instance["InstanceId"])
    assert terminated["State"]["Name"] == "terminated"
    assert "PrivateIpAddress" not in terminated
    assert terminated["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert terminated["StateTransitionReason"].startswith("User initiated (")
    assert terminated["StateTransitionReason"].endswith(" GMT)")
    assert launch(PrivateIpAddress=instance["PrivateIpAddress"])


def test_terminate_may_be_repeated(local, ec2, launch):
    instance_id = launch()[0]["InstanceId"]
    ec2.terminate_instances(InstanceIds=[instance_id])
    local.settle()
    again = ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert again["CurrentState"]["Name"] == again["PreviousState"]["Name"] == "terminated"


def test_a_terminated_instance_is_forgotten_after_an_hour(local, ec2, launch):
    instance_id = launch()[0]["InstanceId"]
    ec2.terminate_instances(InstanceIds=[instance_id])
    local.settle()
    local.pass_time(3601)
    local.cloud.machine_controller.tick()
    with pytest.raises(ClientError) as caught:
        ec2.describe_instances(InstanceIds=[instance_id])
    assert code(caught) == "InvalidInstanceID.NotFound"
    assert not ec2.describe_instances()["Reservations"]


def test_a_private_address_is_used_once(launch):
    launch(PrivateIpAddress="10.42.1.77")
    with pytest.raises(ClientError) as caught:
        launch(PrivateIpAddress="10.42.1.77")
    assert code(caught) == "InvalidIPAddress.InUse"


def test_a_launch_into_a_full_subnet_is_refused_whole(local, ec2, subnet, launch):
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    small = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.9.0/28", AvailabilityZone="us-east-1a")
    with pytest.raises(ClientError) as caught:
        launch(12, SubnetId=small["Subnet"]["SubnetId"])
    assert code(caught) == "InsufficientFreeAddressesInSubnet"
    assert not local.instances(), "all or none"


def test_stopping_and_starting_keep_the_address(local, ec2, launch, show):
    instance = launch()[0]
    local.settle()
    ec2.stop_instances(InstanceIds=[instance["InstanceId"]])
    local.settle()
    assert show(instance["InstanceId"])["State"]["Name"] == "stopped"
    ec2.start_instances(InstanceIds=[instance["InstanceId"]])
    local.settle()
    restarted = show(instance["InstanceId"])
    assert (restarted["State"]["Name"], restarted["PrivateIpAddress"]) == (
        "running",
        instance["PrivateIpAddress"],
    )


@pytest.mark.parametrize(("behaviour", "end"), [("stop", "stopped"), ("terminate", "terminated")])
def test_a_poweroff_inside_the_machine_stops_or_terminates_the_instance_as_launched(
    local, launch, show, behaviour, end
):
    instance_id = launch(InstanceInitiatedShutdownBehavior=behaviour)[0]["InstanceId"]
    local.settle()
    local.driver.stop(instance_id, grace=0)
    local.until(lambda: show(instance_id)["State"]["Name"] == end)
    assert show(instance_id)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_a_machine_that_does_not_start_terminates_the_instance_with_the_reason(local, launch, show):
    def refuse(spec, *, on_network=None):
        raise RuntimeError("no room")

    local.driver.start = refuse
    instance_id = launch()[0]["InstanceId"]
    local.settle()
    instance = show(instance_id)
    assert instance["State"]["Name"] == "terminated"
    assert instance["StateReason"]["Code"] == "Server.InternalError"
    assert "no room" in instance["StateReason"]["Message"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ImageId": "ami-00000000"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "g5.gigantic"}, "InvalidParameterValue"),
        ({"SubnetId": "subnet-00000000"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-00000000"]}, "InvalidGroup.NotFound"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "NoSuchEntity"),
        ({"UserData": "x" * 16385}, "InvalidParameterValue"),
        (
            {
                "TagSpecifications": [
                    {
                        "ResourceType": "spot-instances-request",
                        "Tags": [{"Key": "a", "Value": "b"}],
                    }
                ]
            },
            "InvalidParameterValue",
        ),
        (
            {"LaunchTemplate": {"LaunchTemplateName": "no"}},
            "InvalidLaunchTemplateName.NotFoundException",
        ),
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}]},
            "InvalidParameterCombination",
        ),
    ],
)
def test_an_invalid_launch_is_refused_with_ec2s_code_and_starts_nothing(
    local, launch, changes, expected
):
    with pytest.raises(ClientError) as caught:
        launch(**changes)
    assert code(caught) == expected
    assert not local.instances()


def test_a_public_address_puts_the_machine_into_the_hosts_network(local, launch, subnet):
    nic = {"DeviceIndex": 0, "SubnetId": subnet, "AssociatePublicIpAddress": True}
    launched = launch(SubnetId=None, NetworkInterfaces=[nic])[0]
    instance = local.cloud.tables.instances[launched["InstanceId"]]
    spec = local.cloud._spec(instance)
    assert spec.host_network
    assert spec.address is None
    assert launched["InstanceId"] in spec.environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"]


def test_a_machine_without_public_address_has_its_own_network(local, launch):
    instance = launch()[0]
    spec = local.cloud._spec(local.cloud.tables.instances[instance["InstanceId"]])
    assert not spec.host_network
    assert str(spec.address) == f"{instance['PrivateIpAddress']}/24"
    assert [str(one) for one in spec.routes] == ["10.42.0.0/16"]


def test_a_launch_overrides_its_launch_template_key_by_key(local, ec2, launch):
    def tag(key, value):
        return {"Key": key, "Value": value}

    ec2.create_launch_template(
        LaunchTemplateName="t",
        LaunchTemplateData={
            "ImageId": local.image,
            "InstanceType": "g5.2xlarge",
            "UserData": base64.b64encode(b"#!/bin/sh").decode(),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [tag("a", "template"), tag("b", "template")]},
                {"ResourceType": "volume", "Tags": [tag("v", "template")]},
            ],
        },
    )
    instance = launch(
        ImageId=None,
        LaunchTemplate={"LaunchTemplateName": "t"},
        MetadataOptions={"InstanceMetadataTags": "enabled"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": [tag("b", "call")]}],
    )[0]
    assert instance["InstanceType"] == "g5.xlarge"
    options = instance["MetadataOptions"]
    assert (options["HttpTokens"], options["InstanceMetadataTags"]) == ("required", "enabled")
    tags = {one["Key"]: one["Value"] for one in instance["Tags"]}
    assert (tags["a"], tags["b"]) == ("template", "call")
    assert tags["aws:ec2launchtemplate:version"] == "1"
    volume = instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    created_volume = ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]
    assert {"Key": "v", "Value": "template"} in created_volume["Tags"]


def test_a_client_token_launches_once(local, launch):
    first = launch(2, ClientToken="t1")
    again = launch(2, ClientToken="t1")
    assert [one["InstanceId"] for one in first] == [one["InstanceId"] for one in again]
    assert len(local.instances()) == 2
    with pytest.raises(ClientError) as caught:
        launch(3, ClientToken="t1")
    assert code(caught) == "IdempotentParameterMismatch"


def test_a_refused_launch_does_not_use_up_its_client_token(local, launch):
    with pytest.raises(ClientError):
        launch(ImageId="ami-00000000", ClientToken="t2")
    assert launch(ClientToken="t2")


@pytest.mark.parametrize("local_options", [{"visible_after": 5.0}])
def test_a_new_instance_is_not_listed_at_once(local, ec2, launch, show):
    instance_id = launch()[0]["InstanceId"]
    assert not ec2.describe_instances()["Reservations"]
    with pytest.raises(ClientError) as caught:
        show(instance_id)
    assert code(caught) == "InvalidInstanceID.NotFound"
    local.pass_time(6)
    assert show(instance_id)["InstanceId"] == instance_id


def exhaust(ec2):
    for _ in range(200):
        ec2.describe_instances()


def test_requests_over_the_published_rate_are_refused(tmp_path):
    with started(tmp_path, throttle=True) as local:
        ec2 = local.client("ec2")
        local.clock.stop()
        with pytest.raises(ClientError) as caught:
            exhaust(ec2)
        assert code(caught) == "RequestLimitExceeded"
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        local.clock.offset += 60
        assert ec2.describe_instances()


def test_the_console_output_is_the_machines(local, ec2, launch):
    instance_id = launch()[0]["InstanceId"]
    assert ec2.get_console_output(InstanceId=instance_id)["Output"] == f"console of {instance_id}\n"


def test_instances_are_found_by_tag(ec2, launch):
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "toolkit:cluster", "Value": "one"}]}]
    tagged_instances = launch(2, TagSpecifications=tags)
    launch(1)
    described = ec2.describe_instances(Filters=[{"Name": "tag:toolkit:cluster", "Values": ["one"]}])
    ids = {one["InstanceId"] for group in described["Reservations"] for one in group["Instances"]}
    assert ids == {one["InstanceId"] for one in tagged_instances}


def test_spot_prices_are_the_same_in_each_call_and_differ_by_zone(ec2, local):
    parameters = {"InstanceTypes": ["g5.xlarge"], "ProductDescriptions": ["Linux/UNIX"]}
    now = ec2.describe_spot_price_history(**parameters, StartTime=local.wall())["SpotPriceHistory"]
    assert now == ec2.describe_spot_price_history(**parameters)["SpotPriceHistory"]
    prices = {one["AvailabilityZone"]: float(one["SpotPrice"]) for one in now}
    assert len(prices) == len(now)
    assert all(0.2 < price < 0.6 for price in prices.values())
    assert len(set(prices.values())) > 1
    past = ec2.describe_spot_price_history(
        **parameters, AvailabilityZone="us-east-1a", StartTime=local.wall() - 86400
    )["SpotPriceHistory"]
    assert len(past) == 5


def test_a_maximum_price_below_the_spot_price_is_refused(launch):
    options = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.01"}}
    with pytest.raises(ClientError) as caught:
        launch(InstanceMarketOptions=options)
    assert code(caught) == "SpotMaxPriceTooLow"


def test_an_image_becomes_available_once_the_disk_is_kept(local, ec2, launch):
    instance_id = launch()[0]["InstanceId"]
    local.settle()
    ec2.stop_instances(InstanceIds=[instance_id])
    local.settle()
    tags = [{"ResourceType": "image", "Tags": [{"Key": "toolkit:image", "Value": "compute"}]}]
    image = ec2.create_image(InstanceId=instance_id, Name="mine", TagSpecifications=tags)["ImageId"]

    def available():
        described = ec2.describe_images(ImageIds=[image])["Images"][0]
        return described if described["State"] == "available" else None

    described = local.until(available)
    assert described["Name"] == "mine"
    assert described["OwnerId"] == "123456789012"
    assert local.cloud._registry.images()[-1].tags == {"toolkit:image": "compute"}
    assert launch(ImageId=image)
    with pytest.raises(ClientError) as caught:
        ec2.create_image(InstanceId=instance_id, Name="mine")
    assert code(caught) == "InvalidAMIName.Duplicate"
    ec2.deregister_image(ImageId=image)
    assert len(local.cloud._registry.images()) == 1


def test_create_image_stops_a_running_instance_for_a_moment(local, ec2, launch, show):
    instance_id = launch()[0]["InstanceId"]
    local.settle()
    image = ec2.create_image(InstanceId=instance_id, Name="mine")["ImageId"]
    local.until(lambda: ec2.describe_images(ImageIds=[image])["Images"][0]["State"] == "available")
    assert local.cloud._registry.images()[-1].id == image
    assert show(instance_id)["State"]["Name"] == "running"


def test_debians_image_is_found_by_owner_and_name(local, ec2):
    images = ec2.describe_images(
        Owners=["136693071363"], Filters=[{"Name": "name", "Values": ["debian-13-amd64-*"]}]
    )["Images"]
    assert [one["ImageId"] for one in images] == [local.image]
    assert images[0]["Architecture"] == "x86_64"
    with pytest.raises(ClientError) as caught:
        ec2.deregister_image(ImageId=local.image)
    assert code(caught) == "AuthFailure"


def test_ssm_runs_commands_in_the_machine_and_writes_their_output_to_s3(local, launch):
    s3, ssm = local.client("s3"), local.client("ssm")
    s3.create_bucket(Bucket="bucket")
    instance_id = launch()[0]["InstanceId"]
    with pytest.raises(ClientError) as caught:
        ssm.send_command(InstanceIds=[instance_id], DocumentName="AWS-RunShellScript")
    assert code(caught) == "InvalidInstanceId"
    local.settle()
    assert (
        ssm.describe_instance_information()["InstanceInformationList"][0]["InstanceId"]
        == instance_id
    )

    def run(line):
        command_id = ssm.send_command(
            InstanceIds=[instance_id],
            DocumentName="AWS-RunShellScript",
            Parameters={"commands": [line]},
            OutputS3BucketName="bucket",
            OutputS3KeyPrefix="ssm",
        )["Command"]["CommandId"]

        def finished_invocation():
            invocation = ssm.get_command_invocation(CommandId=command_id, InstanceId=instance_id)
            return invocation if invocation["Status"] not in ("Pending", "InProgress") else None

        return local.until(finished_invocation)

    good = run("true")
    assert (good["Status"], good["ResponseCode"]) == ("Success", 0)
    assert good["StandardOutputContent"] == "out\n"
    key = f"ssm/{good['CommandId']}/{instance_id}/awsrunShellScript/0.awsrunShellScript/stdout"
    assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == b"out\n"
    bad = run("fail")
    assert (bad["Status"], bad["ResponseCode"]) == ("Failed", 3)
    assert bad["StandardErrorContent"] == "err\n"
    assert local.driver.ran[0] == (instance_id, b"true\n")


def lustre_group(ec2, subnet, *ports):
    """Create a security group that lets its own members use these ports."""
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="lustre", Description="one", VpcId=vpc)["GroupId"]
    for first, last in ports:
        rule = {"IpProtocol": "tcp", "FromPort": first, "ToPort": last}
        rule["UserIdGroupPairs"] = [{"GroupId": group}]
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
    return group


@pytest.mark.parametrize("ports", [(), [(988, 988)], [(1018, 1023)]])
def test_a_file_system_is_refused_in_a_group_that_is_closed_to_itself(local, ec2, subnet, ports):
    """Create a file system in groups with some of Lustre's ports."""
    with pytest.raises(ClientError, match="do not permit Lustre LNET network traffic on port 988"):
        local.client("fsx").create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=1200,
            SubnetIds=[subnet],
            SecurityGroupIds=[lustre_group(ec2, subnet, *ports)],
        )
    assert not local.client("fsx").describe_file_systems()["FileSystems"]
    assert not ec2.describe_network_interfaces()["NetworkInterfaces"]


def test_an_interface_keeps_its_address_while_it_moves_between_instances(
    local, ec2, subnet, launch
):
    """Launch with an interface made before, terminate, and launch again with it.

    Its address is refused to others; the second launch is refused while the first holds it.
    """
    interface = ec2.create_network_interface(SubnetId=subnet, PrivateIpAddress="10.42.1.10")
    interface_id = interface["NetworkInterface"]["NetworkInterfaceId"]
    nics = [{"DeviceIndex": 0, "NetworkInterfaceId": interface_id}]
    with pytest.raises(ClientError, match=r"InvalidIPAddress\.InUse"):
        ec2.create_network_interface(SubnetId=subnet, PrivateIpAddress="10.42.1.10")
    first = launch(SubnetId=None, NetworkInterfaces=nics)[0]
    assert first["PrivateIpAddress"] == "10.42.1.10"
    local.settle()
    with pytest.raises(ClientError, match=r"InvalidNetworkInterface\.InUse"):
        launch(SubnetId=None, NetworkInterfaces=nics)
    with pytest.raises(ClientError, match="currently in use"):
        ec2.delete_network_interface(NetworkInterfaceId=interface_id)
    ec2.terminate_instances(InstanceIds=[first["InstanceId"]])
    local.settle()
    second = launch(SubnetId=None, NetworkInterfaces=nics)[0]
    assert second["PrivateIpAddress"] == "10.42.1.10"
    local.settle()
    ec2.terminate_instances(InstanceIds=[second["InstanceId"]])
    local.settle()
    ec2.delete_network_interface(NetworkInterfaceId=interface_id)
    assert launch(PrivateIpAddress="10.42.1.10")


def test_a_file_system_has_a_directory_and_addresses_until_it_is_deleted(local, ec2, subnet):
    fsx = local.client("fsx")
    group = lustre_group(ec2, subnet, (988, 988), (1018, 1023))
    file_system = fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet], SecurityGroupIds=[group]
    )["FileSystem"]
    ids = file_system["NetworkInterfaceIds"]
    rows = ec2.describe_network_interfaces(NetworkInterfaceIds=ids)["NetworkInterfaces"]
    addresses = {row["PrivateIpAddress"] for row in rows}
    assert len(addresses) == len(ids)
    assert all(address.startswith("10.42.1.") for address in addresses)
    directory = local.cloud.options.state / "fsx" / file_system["FileSystemId"]
    assert directory.is_dir()
    assert file_system["LustreConfiguration"]["MountName"] == "shared"
    fsx.delete_file_system(FileSystemId=file_system["FileSystemId"])
    assert not directory.exists()
    assert not ec2.describe_network_interfaces()["NetworkInterfaces"]


def test_s3_objects_are_read_as_they_were_written(local):
    s3 = local.client("s3")
    s3.create_bucket(Bucket="bucket")
    body = bytes(range(256)) * 4096
    s3.put_object(Bucket="bucket", Key="a/b", Body=body)
    assert s3.get_object(Bucket="bucket", Key="a/b")["Body"].read() == body
    s3.put_object(Bucket="bucket", Key="empty", Body=b"")
    assert s3.get_object(Bucket="bucket", Key="empty")["Body"].read() == b""


def test_the_caller_identity_is_the_one_aws_account(local):
    assert local.client("sts").get_caller_identity()["Account"] == "123456789012"
