"""Security groups: the firewall that follows from EC2's calls and from stacks."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Network

import pytest
from botocore.exceptions import ClientError

from tests.contract.local.test_stack_updates import SUBNET, VPC, Stack
from toolkit.local.aws import security_groups
from toolkit.local.firewall_controller import FirewallController
from toolkit.local.machines.firewall import ICMP, TCP, Firewall, Rule

ANYWHERE = IPv4Network("0.0.0.0/0")


@pytest.fixture
def vpc(ec2, subnet):
    return ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]


@pytest.fixture
def group(ec2, vpc):
    """A function that makes a security group in the subnet's VPC."""

    def make(name):
        made = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)
        return made["GroupId"]

    return make


@pytest.fixture
def firewall(local, vpc):
    """A function that returns the VPC's firewall."""

    def read():
        with local.cloud.tables.lock:
            return security_groups.firewalls(local.cloud.tables)[vpc]

    return read


def address_of(instance):
    return IPv4Address(instance["PrivateIpAddress"])


def test_a_group_has_the_addresses_of_its_instances(local, ec2, launch, group, firewall):
    """Follow the group from the launch to the end of its instances."""
    nodes = group("nodes")
    instances = launch(3, SecurityGroupIds=[nodes])
    addresses = frozenset(map(address_of, instances))
    assert firewall().members == {nodes: addresses}
    ec2.terminate_instances(InstanceIds=[instances[0]["InstanceId"]])
    local.settle()
    assert firewall().members == {nodes: addresses - {address_of(instances[0])}}


def test_an_instance_without_a_group_is_in_the_default_group_of_its_vpc(ec2, launch, vpc, firewall):
    (instance,) = launch()
    (default,) = ec2.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    )["SecurityGroups"]
    assert firewall().members == {default["GroupId"]: frozenset({address_of(instance)})}


def test_rules_come_and_go_with_the_calls_that_make_them(ec2, launch, group, firewall):
    head, nodes = group("head"), group("nodes")
    launch(SecurityGroupIds=[head])
    default = Rule(head, None, None, peer_network=ANYWHERE)
    assert default in firewall().egress
    ports = {"IpProtocol": "tcp", "FromPort": 6817, "ToPort": 6819}
    from_nodes = {**ports, "UserIdGroupPairs": [{"GroupId": nodes}]}
    from_network = {**ports, "IpRanges": [{"CidrIp": "10.1.2.3/16"}, {"CidrIp": "10.9.0.0/24"}]}
    ping = {"IpProtocol": "icmp", "FromPort": 8, "ToPort": -1}
    ping |= {"UserIdGroupPairs": [{"GroupId": head}]}
    before = firewall().ingress
    for permission in (from_nodes, from_network, ping):
        ec2.authorize_security_group_ingress(GroupId=head, IpPermissions=[permission])
    assert firewall().ingress - before == {
        Rule(head, TCP, (6817, 6819), peer_group=nodes),
        Rule(head, TCP, (6817, 6819), peer_network=IPv4Network("10.1.0.0/16")),
        Rule(head, TCP, (6817, 6819), peer_network=IPv4Network("10.9.0.0/24")),
        Rule(head, ICMP, (8, -1), peer_group=head),
    }
    for permission in (from_nodes, from_network, ping):
        ec2.revoke_security_group_ingress(GroupId=head, IpPermissions=[permission])
    assert firewall().ingress == before
    everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.revoke_security_group_egress(GroupId=head, IpPermissions=[everything])
    assert default not in firewall().egress


def test_a_prefix_list_is_its_networks(ec2, launch, group, firewall):
    head = group("head")
    launch(SecurityGroupIds=[head])
    entries = [{"Cidr": "10.3.0.0/16"}, {"Cidr": "10.4.0.0/16"}]
    prefix_list = ec2.create_managed_prefix_list(
        PrefixListName="sites", AddressFamily="IPv4", MaxEntries=5, Entries=entries
    )["PrefixList"]["PrefixListId"]
    permission = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    permission |= {"PrefixListIds": [{"PrefixListId": prefix_list}]}
    ec2.authorize_security_group_ingress(GroupId=head, IpPermissions=[permission])
    rules = {rule.peer_network for rule in firewall().ingress if rule.ports == (22, 22)}
    assert rules == {IPv4Network("10.3.0.0/16"), IPv4Network("10.4.0.0/16")}


def test_new_groups_of_an_instance_take_the_place_of_the_old(ec2, launch, group, firewall, show):
    old, new, newer = group("old"), group("new"), group("newer")
    (instance,) = launch(SecurityGroupIds=[old])
    ec2.modify_instance_attribute(InstanceId=instance["InstanceId"], Groups=[new])
    assert firewall().members == {new: frozenset({address_of(instance)})}
    (interface,) = show(instance["InstanceId"])["NetworkInterfaces"]
    ec2.modify_network_interface_attribute(
        NetworkInterfaceId=interface["NetworkInterfaceId"], Groups=[newer]
    )
    assert firewall().members == {newer: frozenset({address_of(instance)})}
    described = show(instance["InstanceId"])
    assert [row["GroupId"] for row in described["SecurityGroups"]] == [newer]


@pytest.mark.parametrize("call", ["interface", "instance"])
def test_a_group_that_does_not_exist_is_refused(ec2, launch, subnet, call):
    missing = "sg-0123456789abcdef0"
    (instance,) = launch()
    calls = {
        "interface": (ec2.create_network_interface, {"SubnetId": subnet}),
        "instance": (ec2.modify_instance_attribute, {"InstanceId": instance["InstanceId"]}),
    }
    function, words = calls[call]
    with pytest.raises(ClientError, match="does not exist") as refused:
        function(**words, Groups=[missing])
    assert refused.value.response["Error"]["Code"] == "InvalidGroup.NotFound"


def test_a_protocol_that_nobody_knows_permits_nothing(ec2, launch, group, firewall):
    head = group("head")
    launch(SecurityGroupIds=[head])
    before = firewall()
    odd = {"IpProtocol": "nonsense", "FromPort": 1, "ToPort": 2}
    odd |= {"IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=head, IpPermissions=[odd])
    assert firewall() == before


class Recorder:
    """A driver that remembers the firewalls that it gets."""

    def __init__(self) -> None:
        self.firewalls = {}

    def set_firewall(self, vpc_id, firewall):
        self.firewalls[vpc_id] = firewall


def test_the_controller_hands_each_vpcs_firewall_to_the_driver(local, launch, group, vpc, firewall):
    launch(SecurityGroupIds=[group("head")])
    driver = Recorder()
    FirewallController(local.cloud.tables, driver).tick()
    assert driver.firewalls[vpc] == firewall() != Firewall()


@pytest.fixture
def stack(local):
    return Stack(local, local.client("cloudformation"))


def security_group(**properties):
    own = {"GroupDescription": "one", "VpcId": {"Ref": "Vpc"}}
    return {"Type": "AWS::EC2::SecurityGroup", "Properties": own | properties}


def ports(port, **peer):
    return {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **peer}


def rules_of(local, group_id):
    """Return a group's ingress and egress as rows."""
    (row,) = local.client("ec2").describe_security_groups(GroupIds=[group_id])["SecurityGroups"]
    return [sorted(map(_as_row, row[key])) for key in ("IpPermissions", "IpPermissionsEgress")]


def _as_row(permission):
    groups = [pair["GroupId"] for pair in permission["UserIdGroupPairs"]]
    networks = [network["CidrIp"] for network in permission["IpRanges"]]
    return permission["IpProtocol"], permission.get("FromPort"), json.dumps(groups + networks)


def test_a_stacks_group_has_the_egress_of_its_template_and_no_other(local, stack):
    egress = [ports(443, CidrIp="10.9.0.0/16")]
    resources = {
        "Vpc": VPC,
        "Open": security_group(),
        "Narrow": security_group(SecurityGroupEgress=egress),
    }
    assert stack.apply(resources, "CREATE") == "CREATE_COMPLETE"
    assert rules_of(local, stack.resource("Open")) == [[], [("-1", None, '["0.0.0.0/0"]')]]
    assert rules_of(local, stack.resource("Narrow")) == [[], [("tcp", 443, '["10.9.0.0/16"]')]]


def test_an_egress_rule_is_a_resource_of_its_own(local, stack):
    """Let a group reach itself, as EFA needs, and delete that."""
    rule = {
        "Type": "AWS::EC2::SecurityGroupEgress",
        "Properties": {
            "GroupId": {"Ref": "Nodes"},
            "DestinationSecurityGroupId": {"Ref": "Nodes"},
            "IpProtocol": "-1",
        },
    }
    anywhere = [{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}]
    base = {"Vpc": VPC, "Nodes": security_group(SecurityGroupEgress=anywhere)}
    assert stack.apply({**base, "Itself": rule}, "CREATE") == "CREATE_COMPLETE"
    nodes = stack.resource("Nodes")
    assert rules_of(local, nodes)[1] == [("-1", None, json.dumps([nodes, "0.0.0.0/0"]))]
    assert stack.apply(base) == "UPDATE_COMPLETE"
    assert rules_of(local, nodes)[1] == [("-1", None, '["0.0.0.0/0"]')]


def test_changed_rules_of_a_group_in_use_leave_the_group_and_other_rules(local, stack):
    """Change a group that an interface and another resource use."""
    interface = {
        "Type": "AWS::EC2::NetworkInterface",
        "Properties": {"SubnetId": {"Ref": "Subnet"}, "GroupSet": [{"Ref": "Head"}]},
    }
    own_rule = {
        "Type": "AWS::EC2::SecurityGroupIngress",
        "Properties": {"GroupId": {"Ref": "Head"}, **ports(6817, CidrIp="10.9.1.0/24")},
    }
    base = {"Vpc": VPC, "Subnet": SUBNET, "Interface": interface, "Rule": own_rule}
    before = security_group(SecurityGroupIngress=[ports(22, CidrIp="10.0.0.0/8")])
    after = security_group(SecurityGroupIngress=[ports(80, CidrIp="10.0.0.0/8")])
    assert stack.apply({**base, "Head": before}, "CREATE") == "CREATE_COMPLETE"
    head = stack.resource("Head")
    assert stack.apply({**base, "Head": after}) == "UPDATE_COMPLETE"
    assert stack.resource("Head") == head
    assert [rule[1] for rule in rules_of(local, head)[0]] == [80, 6817]
