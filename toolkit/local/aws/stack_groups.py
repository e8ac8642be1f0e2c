"""Security groups and their rules in stacks.

moto ignores the egress rules of a template, makes a group anew to change a rule of it, and has no
AWS::EC2::SecurityGroupEgress. Source: CloudFormation template reference, AWS::EC2::SecurityGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.core.common_models import CloudFormationModel
from moto.ec2.models import ec2_backends
from moto.ec2.models.security_groups import SecurityGroup

from toolkit.local.aws.stack_type import StackType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.aws.moto_patches import Patches


def install(patches: Patches) -> None:
    """Make and change groups as CloudFormation does."""
    patches.replace(SecurityGroup, "create_from_cloudformation_json", classmethod(_create))
    patches.replace(SecurityGroup, "update_from_cloudformation_json", classmethod(_update))


class StackEgressRule(StackType, CloudFormationModel):  # type: ignore[misc]  # moto is untyped here
    """An egress rule of its own in a stack; Ref gives the rule's id."""

    TYPE = "AWS::EC2::SecurityGroupEgress"

    def __init__(self, group: Any, rule_ids: frozenset[str]) -> None:
        """Stand for rules of moto's group."""
        self._group = group
        self._rule_ids = rule_ids

    @property
    def physical_resource_id(self) -> str:
        """Return what Ref gives."""
        return ",".join(sorted(self._rule_ids))

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> StackEgressRule:
        """Add the rule; the rules that the group has stay."""
        del resource_name
        properties = cloudformation_json["Properties"]
        backend = ec2_backends[account_id][region_name]
        group = backend.get_security_group_from_id(properties["GroupId"])
        return cls(group, _authorize(backend, group, properties, egress=True))

    def delete(self, account_id: str, region_name: str) -> None:
        """Take the rule from its group."""
        del account_id, region_name
        _drop(self._group, self._rule_ids)


def _create(
    _cls: Any, /, name: str, body: Mapping[str, Any], account_id: str, region_name: str, **_: Any
) -> Any:
    properties = body["Properties"]
    backend = ec2_backends[account_id][region_name]
    group = backend.create_security_group(
        name=properties.get("GroupName") or name,
        description=properties.get("GroupDescription"),
        vpc_id=properties.get("VpcId"),
        tags={tag["Key"]: tag["Value"] for tag in properties.get("Tags") or ()},
    )
    if properties.get("SecurityGroupEgress"):
        group.egress_rules.clear()  # those that a group has where it names none
    _write_rules(backend, group, properties)
    return group


def _update(
    _cls: Any,
    /,
    original_resource: Any,
    new_resource_name: str,
    cloudformation_json: Mapping[str, Any],
    account_id: str,
    region_name: str,
) -> Any:
    """Change the group's own rules; those that are resources themselves stay."""
    del new_resource_name
    group, properties = original_resource, cloudformation_json["Properties"]
    _drop(group, group.rules_of_template)
    _write_rules(ec2_backends[account_id][region_name], group, properties)
    group.add_tags({tag["Key"]: tag["Value"] for tag in properties.get("Tags") or ()})
    return group


def _write_rules(backend: Any, group: Any, properties: Mapping[str, Any]) -> None:
    group.rules_of_template = frozenset().union(
        *(
            _authorize(backend, group, rule, egress=False)
            for rule in properties.get("SecurityGroupIngress") or ()
        ),
        *(
            _authorize(backend, group, rule, egress=True)
            for rule in properties.get("SecurityGroupEgress") or ()
        ),
    )


def _authorize(
    backend: Any, group: Any, properties: Mapping[str, Any], *, egress: bool
) -> frozenset[str]:
    """Add a rule as a template has it; return its id."""
    end = "Destination" if egress else "Source"
    peer_group = properties.get(f"{end}SecurityGroupId")
    prefix_list = properties.get(f"{end}PrefixListId")
    networks = {key: properties[key] for key in ("CidrIp", "CidrIpv6") if properties.get(key)}
    add = (
        backend.authorize_security_group_egress
        if egress
        else backend.authorize_security_group_ingress
    )
    rules, _ = add(
        group.id,
        str(properties["IpProtocol"]),
        properties.get("FromPort", -1),
        properties.get("ToPort", -1),
        [{**networks, "Description": properties.get("Description")}] if networks else [],
        source_groups=[{"GroupId": peer_group}] if peer_group else [],
        prefix_list_ids=[{"PrefixListId": prefix_list}] if prefix_list else [],
    )
    return frozenset(rule.id for rule in rules)


def _drop(group: Any, rule_ids: frozenset[str]) -> None:
    group.ingress_rules = [rule for rule in group.ingress_rules if rule.id not in rule_ids]
    group.egress_rules = [rule for rule in group.egress_rules if rule.id not in rule_ids]
