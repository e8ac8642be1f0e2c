"""Tell changes in place from replacements, as CloudFormation does. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from toolkit.local.aws.stack_template import order, references

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Properties that only creation can set: createOnlyProperties of CloudFormation's own schemas.
# A unit test compares them with the copy of these schemas in cfn-lint.
CREATE_ONLY: dict[str, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        "AWS::CloudWatch::Alarm": "AlarmName",
        "AWS::EC2::EIP": "NetworkBorderGroup TransferAddress IpamPoolId Address",
        "AWS::EC2::Instance": "AvailabilityZone CpuOptions ElasticGpuSpecifications"
        " ElasticInferenceAccelerators EnclaveOptions HibernationOptions HostResourceGroupArn"
        " ImageId Ipv6AddressCount Ipv6Addresses KeyName LaunchTemplate LicenseSpecifications"
        " NetworkInterfaces PlacementGroupName PrivateIpAddress SecurityGroups SubnetId",
        "AWS::EC2::InternetGateway": "",
        "AWS::EC2::LaunchTemplate": "LaunchTemplateName",
        "AWS::EC2::NatGateway": "VpcId SubnetId ConnectivityType AllocationId PrivateIpAddress"
        " AvailabilityMode",
        "AWS::EC2::NetworkInterface": "PrivateIpAddress InterfaceType SubnetId",
        "AWS::EC2::PlacementGroup": "Tags Strategy SpreadLevel PartitionCount ParentGroupId",
        "AWS::EC2::Route": "RouteTableId DestinationCidrBlock DestinationIpv6CidrBlock"
        " DestinationPrefixListId",
        "AWS::EC2::RouteTable": "VpcId",
        "AWS::EC2::SecurityGroup": "GroupDescription GroupName VpcId",
        "AWS::EC2::SecurityGroupEgress": "IpProtocol DestinationSecurityGroupId ToPort CidrIp"
        " FromPort GroupId CidrIpv6 DestinationPrefixListId",
        "AWS::EC2::SecurityGroupIngress": "GroupName IpProtocol SourceSecurityGroupId"
        " SourcePrefixListId ToPort CidrIp SourceSecurityGroupName SourceSecurityGroupOwnerId"
        " FromPort GroupId CidrIpv6",
        "AWS::EC2::Subnet": "VpcId AvailabilityZone AvailabilityZoneId CidrBlock OutpostArn"
        " Ipv6Native Ipv4IpamPoolId Ipv4NetmaskLength Ipv6IpamPoolId Ipv6NetmaskLength",
        "AWS::EC2::SubnetRouteTableAssociation": "SubnetId RouteTableId",
        "AWS::EC2::Volume": "",
        "AWS::EC2::VolumeAttachment": "Device InstanceId VolumeId EbsCardIndex",
        "AWS::EC2::VPC": "CidrBlock Ipv4IpamPoolId Ipv4NetmaskLength VpcEncryptionControl",
        "AWS::EC2::VPCEndpoint": "ServiceName VpcEndpointType VpcId ServiceNetworkArn"
        " ResourceConfigurationArn ServiceRegion",
        "AWS::EC2::VPCGatewayAttachment": "VpcId",
        "AWS::FSx::FileSystem": "KmsKeyId SecurityGroupIds FileSystemType SubnetIds BackupId",
        "AWS::IAM::InstanceProfile": "InstanceProfileName Path",
        "AWS::IAM::Role": "Path RoleName",
        "AWS::Logs::LogGroup": "LogGroupName",
        "AWS::S3::Bucket": "BucketName BucketNamePrefix BucketNamespace",
        "AWS::S3::BucketPolicy": "Bucket",
        "AWS::SNS::Subscription": "Endpoint Protocol TopicArn",
        "AWS::SNS::Topic": "TopicName FifoTopic",
        "AWS::SSM::Document": "DocumentType Name",
        "AWS::SecretsManager::Secret": "Name",
    }.items()
}
# Properties for which a change set says Conditional; the last set replaces the instance:
# https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-ec2-instance.html
_CONDITIONAL = {
    "AWS::EC2::Instance": frozenset(
        {"BlockDeviceMappings", "InstanceType", "SecurityGroupIds", "UserData"}
    )
}
_NEW_INSTANCE = frozenset({"BlockDeviceMappings"})

Replacement = Literal["True", "False", "Conditional"]


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A change of one resource by an update."""

    action: Literal["Add", "Modify", "Remove"]
    name: str
    kind: str
    properties: frozenset[str] = frozenset()
    replacement: Replacement = "False"  # as a change set says it
    replaces: bool = False  # as an update does it


def resource_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], modified: Collection[str]
) -> tuple[ResourceChange, ...]:
    """Return the changes from one template's resources to another's, in their order.

    `modified` are the resources that moto finds different. A resource that names a
    replaced one changes too.
    """
    changes: list[ResourceChange] = []
    replaced_names: set[str] = set()
    for name in order({"Resources": new}):
        body = new[name]
        kind = str(body["Type"])
        if name not in old:
            changes.append(ResourceChange("Add", name, kind))
            continue
        properties = changed_properties(old[name], body) | _naming(body, replaced_names)
        if name not in modified and not properties:
            continue
        replaces = bool(properties & _replacing(kind)) or old[name]["Type"] != kind
        if replaces:
            replaced_names.add(name)
        changes.append(
            ResourceChange(
                "Modify", name, kind, properties, _replacement(kind, properties), replaces
            )
        )
    removed_names = [name for name in reversed(order({"Resources": old})) if name not in new]
    changes += [ResourceChange("Remove", name, str(old[name]["Type"])) for name in removed_names]
    return tuple(changes)


def changed_properties(old: Mapping[str, Any], new: Mapping[str, Any]) -> frozenset[str]:
    """Return the properties in which two versions of a resource differ."""
    before, after = old.get("Properties") or {}, new.get("Properties") or {}
    return frozenset(key for key in {*before, *after} if before.get(key) != after.get(key))


def _naming(body: Mapping[str, Any], names: Collection[str]) -> frozenset[str]:
    properties = body.get("Properties") or {}
    return frozenset(
        key for key, value in properties.items() if not set(references(value)).isdisjoint(names)
    )


def _replacing(kind: str) -> frozenset[str]:
    created = CREATE_ONLY.get(kind, frozenset())
    return created | _NEW_INSTANCE if kind == "AWS::EC2::Instance" else created


def _replacement(kind: str, properties: frozenset[str]) -> Replacement:
    if properties & CREATE_ONLY.get(kind, frozenset()):
        return "True"
    return "Conditional" if properties & _CONDITIONAL.get(kind, frozenset()) else "False"
