"""Fixtures of the local cloud's contract tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.local.localcloud import Local, started
from toolkit.local.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def local_options() -> dict[str, Any]:
    """Settings of the local cloud; a test overrides them."""
    return {}


@pytest.fixture
def local(tmp_path, local_options) -> Iterator[Local]:
    with started(tmp_path, **local_options) as local_cloud:
        yield local_cloud


@pytest.fixture
def ec2(local) -> Any:
    return local.client("ec2")


@pytest.fixture
def subnet(ec2) -> str:
    """A private subnet in us-east-1a."""
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    created = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.1.0/24", AvailabilityZone="us-east-1a")
    return created["Subnet"]["SubnetId"]


@pytest.fixture
def launch(local, ec2, subnet) -> Callable[..., list[dict[str, Any]]]:
    """A function that launches instances of one type in the subnet.

    A parameter that is None is left out.
    """

    def run(count: int = 1, **changes: Any) -> list[dict[str, Any]]:
        request = {
            "ImageId": local.image,
            "InstanceType": "g5.xlarge",
            "MinCount": count,
            "MaxCount": count,
            "SubnetId": subnet,
            **changes,
        }
        return ec2.run_instances(**{k: v for k, v in request.items() if v is not None})["Instances"]

    return run


@pytest.fixture
def spot() -> dict[str, Any]:
    return {"InstanceMarketOptions": {"MarketType": "spot"}}


@pytest.fixture
def show(ec2) -> Callable[[str], dict[str, Any]]:
    """A function that describes one instance."""

    def describe(instance_id: str) -> dict[str, Any]:
        described = ec2.describe_instances(InstanceIds=[instance_id])
        return described["Reservations"][0]["Instances"][0]

    return describe


@pytest.fixture
def control(local) -> Client:
    """A client of the local cloud's control endpoint, as in `toolkit local`."""
    return Client(local.cloud.options.port)


@pytest.fixture
def fleet(local, ec2, subnet) -> Callable[..., dict[str, Any]]:
    """A function that creates an instant fleet in two zones."""
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    other = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.2.0/24", AvailabilityZone="us-east-1b")
    subnets = (subnet, other["Subnet"]["SubnetId"])
    ec2.create_launch_template(
        LaunchTemplateName="template", LaunchTemplateData={"ImageId": local.image}
    )

    def create(
        count, *, market="spot", types=("g5.xlarge", "g5.2xlarge"), options=None, **changes: Any
    ):
        overrides = [{"InstanceType": kind, "SubnetId": one} for kind in types for one in subnets]
        specification = {"LaunchTemplateName": "template", "Version": "$Latest"}
        if options:
            changes["SpotOptions" if market == "spot" else "OnDemandOptions"] = options
        return ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {"LaunchTemplateSpecification": specification, "Overrides": overrides}
            ],
            TargetCapacitySpecification={
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": market,
            },
            **changes,
        )

    return create
