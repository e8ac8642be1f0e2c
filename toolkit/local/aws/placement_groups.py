"""Placement groups of stacks, which moto does not have, and the launches into them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from moto.core.common_models import CloudFormationModel
from moto.ec2.models import ec2_backends

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.stack_type import StackType

if TYPE_CHECKING:
    from toolkit.local.aws.launch_request import Launch

STRATEGIES = ("cluster", "partition", "spread")
_ENDED = ("terminated",)


class PlacementGroup(StackType, CloudFormationModel):  # type: ignore[misc]  # moto is untyped here
    """A placement group; Ref gives its name."""

    TYPE = "AWS::EC2::PlacementGroup"

    def __init__(self, name: str, strategy: str) -> None:
        """Make a group, which no list has yet."""
        self.id = f"pg-{secrets.token_hex(8)}1"
        self.name = name
        self.strategy = strategy

    @property
    def physical_resource_id(self) -> str:
        """Return what Ref gives."""
        return self.name

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> PlacementGroup:
        """Create the group; refuse a strategy that EC2 does not have."""
        properties = cloudformation_json["Properties"]
        strategy = str(properties.get("Strategy") or "cluster")
        if strategy not in STRATEGIES:
            message = f"The value '{strategy}' is not a valid placement strategy"
            raise ec2_error("InvalidParameterValue", message)
        backend = ec2_backends[account_id][region_name]
        group = cls(f"{resource_name}-{secrets.token_hex(6)}", strategy)
        _groups(backend)[group.name] = group
        tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags") or ()}
        if tags:
            backend.create_tags([group.id], tags)
        return group

    def delete(self, account_id: str, region_name: str) -> None:
        """Delete the group; refuse while an instance is in it."""
        backend = ec2_backends[account_id][region_name]
        rows = [row for item in backend.reservations.values() for row in item.instances]
        if any(row.placement.group_name == self.name and row.state not in _ENDED for row in rows):
            message = f"The placement group '{self.name}' is in use and may not be deleted."
            raise ec2_error("InvalidPlacementGroup.InUse", message)
        _groups(backend).pop(self.name, None)
        backend.delete_tags([self.id], {})


def check(backend: Any, launch: Launch) -> None:
    """Refuse a launch into a group that does not exist."""
    if launch.placement_group and launch.placement_group not in _groups(backend):
        message = f"The Placement Group '{launch.placement_group}' is unknown."
        raise ec2_error("InvalidPlacementGroup.Unknown", message)


def _groups(backend: Any) -> dict[str, PlacementGroup]:
    """Return the region's groups by name."""
    groups: dict[str, PlacementGroup] = backend.__dict__.setdefault("placement_groups", {})
    return groups
