"""Roles of stacks, with the policies that the template says. moto leaves half of them out.

moto's CloudFormation attaches no managed policy to a role, and an update keeps the old policies.
Source: CloudFormation User Guide, AWS::IAM::Role: both change without interruption.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from moto.iam.exceptions import NotFoundException
from moto.iam.models import Role, iam_backends

from toolkit.local.aws.iam.role_policies import managed_policy
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.aws.moto_patches import Patches


_OWN: Final = "toolkit_policies"
"""Where a role keeps the names of the policies that its properties list."""


def install(patches: Patches) -> None:
    """Have stacks make, change and delete roles with all of their policies."""
    create = Role.create_from_cloudformation_json
    delete = Role.delete_from_cloudformation_json

    def create_role(_cls: Any, name: str, body: Mapping[str, Any], *place: Any, **more: Any) -> Any:
        _check_boundary(body.get("Properties", {}))
        role = create(name, body, *place, **more)
        _give_policies(role, body.get("Properties", {}))
        return role

    def update_role(
        _cls: Any, /, *, original_resource: Any, cloudformation_json: Mapping[str, Any], **_: Any
    ) -> Any:
        properties = cloudformation_json.get("Properties", {})
        original_resource.description = properties.get("Description", "")
        original_resource.tags = properties.get("Tags", original_resource.tags)
        _check_boundary(properties)
        original_resource.permissions_boundary_arn = properties.get("PermissionsBoundary", "")
        _give_policies(original_resource, properties)
        return original_resource

    def delete_role(
        _cls: Any, name: str, body: Mapping[str, Any], *place: Any, **more: Any
    ) -> None:
        for role in iam_backends[ACCOUNT]["aws"].roles.values():
            if role.name == name:
                _give_policies(role, {})
        delete(name, body, *place, **more)

    patches.replace(Role, "create_from_cloudformation_json", classmethod(create_role))
    patches.replace(Role, "update_from_cloudformation_json", classmethod(update_role))
    patches.replace(Role, "delete_from_cloudformation_json", classmethod(delete_role))


def _check_boundary(properties: Mapping[str, Any]) -> None:
    """Refuse a permissions boundary that the account does not have."""
    arn = properties.get("PermissionsBoundary")
    if arn and managed_policy(arn) is None:
        raise NotFoundException(f"Scope ARN: {arn} does not exist or is not attachable.")


def _give_policies(role: Any, properties: Mapping[str, Any]) -> None:
    """Make a role's own policies exactly those of its properties.

    A policy that is a resource of its own (AWS::IAM::Policy) stays.
    """
    own = {
        item["PolicyName"]: json.dumps(item["PolicyDocument"], default=str)
        for item in properties.get("Policies") or ()
    }
    for name in getattr(role, _OWN, ()):
        role.policies.pop(name, None)
    role.policies |= own
    setattr(role, _OWN, tuple(own))
    wanted = set(properties.get("ManagedPolicyArns") or ())
    for policy in list(role.managed_policies.values()):
        if policy.arn not in wanted:
            policy.detach_from(role)
    for arn in sorted(wanted - set(role.managed_policies)):
        iam_backends[ACCOUNT]["aws"].attach_role_policy(arn, role.name)
