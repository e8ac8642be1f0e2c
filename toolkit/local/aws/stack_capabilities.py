"""The capabilities that a change set must acknowledge before a stack makes IAM resources. Pure.

Source: CloudFormation API reference, CreateChangeSet, "Capabilities". moto asks for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from moto.cloudformation.exceptions import CloudFormationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

IAM, NAMED_IAM = "CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"
_NAMES: Final = {
    "AWS::IAM::Group": "GroupName",
    "AWS::IAM::InstanceProfile": "InstanceProfileName",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Policy": "",
    "AWS::IAM::Role": "RoleName",
    "AWS::IAM::User": "UserName",
}
"""The property that names a resource; empty for a policy inside a role."""


class MissingCapabilityError(CloudFormationError):  # type: ignore[misc]  # moto is untyped here
    """A template has IAM resources that its caller did not acknowledge."""

    code = "InsufficientCapabilitiesException"


def check(template: Mapping[str, Any], acknowledged: Collection[str]) -> None:
    """Raise MissingCapabilityError as CreateChangeSet does."""
    needed = _needed(template)
    if needed and not {needed, NAMED_IAM} & set(acknowledged):
        raise MissingCapabilityError(f"Requires capabilities : [{needed}]")


def _needed(template: Mapping[str, Any]) -> str:
    needed = ""
    for body in (template.get("Resources") or {}).values():
        name = _NAMES.get(str(body.get("Type")))
        if name is None:
            continue
        if name in (body.get("Properties") or {}):
            return NAMED_IAM
        needed = IAM
    return needed
