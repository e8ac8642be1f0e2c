"""Calls about the account: quotas, reservations, the default key, DryRun, regions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ClientError

from toolkit.local.aws.capacity_reservations import Row, new_id
from toolkit.local.options import ADMIN_KEY

STANDARD = "L-1216C47A"


def code_of(refused):
    return refused.value.response["Error"]["Code"]


def test_a_quota_has_the_members_of_service_quotas(local):
    quotas = local.client("service-quotas")
    quota = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=STANDARD)["Quota"]
    assert quota["Value"] == 10_000
    assert quota["QuotaName"].startswith("Running On-Demand Standard")
    local.cloud.account.quotas[STANDARD] = 5.0
    quota = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=STANDARD)["Quota"]
    assert quota["Value"] == 5
    with pytest.raises(ClientError) as refused:
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")
    assert code_of(refused) == "NoSuchResourceException"
    assert quotas.get_service_quota(ServiceCode="vpc", QuotaCode="L-F678F1CE")["Quota"]


def test_a_reservation_is_made_described_and_cancelled(ec2):
    end = datetime.now(UTC) + timedelta(hours=1)
    made = ec2.create_capacity_reservation(
        InstanceType="p5.48xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1a",
        InstanceCount=2,
        EndDateType="limited",
        EndDate=end,
    )["CapacityReservation"]
    (row,) = ec2.describe_capacity_reservations()["CapacityReservations"]
    assert row["CapacityReservationId"] == made["CapacityReservationId"]
    assert (row["State"], row["TotalInstanceCount"], row["ReservationType"]) == (
        "active",
        2,
        "default",
    )
    assert abs(row["EndDate"] - end) < timedelta(seconds=1)
    ec2.cancel_capacity_reservation(CapacityReservationId=made["CapacityReservationId"])
    active = [{"Name": "state", "Values": ["active"]}]
    assert ec2.describe_capacity_reservations(Filters=active)["CapacityReservations"] == []
    with pytest.raises(ClientError) as refused:
        ec2.describe_capacity_reservations(CapacityReservationIds=["cr-00000000000000000"])
    assert code_of(refused) == "InvalidCapacityReservationId.NotFound"


def test_a_block_begins_and_ends_by_the_clock(local, ec2):
    now = datetime.fromtimestamp(local.wall(), UTC)
    local.cloud.capacity_reservations.add(
        Row(
            id=new_id(),
            region="us-east-1",
            instance_type="p5.48xlarge",
            zone="us-east-1a",
            count=4,
            starts_at=now + timedelta(hours=1),
            ends_at=now + timedelta(hours=25),
            is_block=True,
        )
    )

    def state():
        (row,) = ec2.describe_capacity_reservations()["CapacityReservations"]
        assert row["ReservationType"] == "capacity-block"
        return row["State"]

    assert state() == "scheduled"
    local.wall.offset += 3601
    assert state() == "active"
    local.wall.offset += 86_400
    assert state() == "expired"


def test_the_default_key_is_awss_own_until_it_is_changed(local, ec2):
    """Stay AWS's own also after the first encrypted disk."""
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"] == "alias/aws/ebs"
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=1, Encrypted=True)
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"] == "alias/aws/ebs"
    key = local.client("kms").create_key()["KeyMetadata"]["Arn"]
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=key)
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"] == key


def test_a_dry_run_checks_the_launch_and_launches_nothing(local, ec2, launch):
    with pytest.raises(ClientError) as refused:
        launch(DryRun=True)
    assert code_of(refused) == "DryRunOperation"
    with pytest.raises(ClientError) as refused:
        launch(DryRun=True, ImageId="ami-0123456789abcdef0")
    assert code_of(refused) == "InvalidAMIID.NotFound"
    assert local.instances() == []


def test_a_region_that_is_not_enabled_refuses_good_credentials(local, ec2):
    (region,) = ec2.describe_regions(RegionNames=["me-south-1"], AllRegions=True)["Regions"]
    assert region["OptInStatus"] == "not-opted-in"
    far = boto3.client(
        "ec2",
        region_name="me-south-1",
        endpoint_url=local.endpoint,
        aws_access_key_id=ADMIN_KEY,
        aws_secret_access_key="local",
    )
    with pytest.raises(ClientError) as refused:
        far.describe_vpcs()
    assert code_of(refused) == "AuthFailure"
