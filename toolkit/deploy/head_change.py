"""Decides whether a deploy needs a new head instance. Pure.

One update of the stack can't replace the instance. CloudFormation makes the new one
before it ends the old one, which still holds the head's network interface and its data
volume. Two updates do it, the first of them without the instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.deploy import head_volume
from toolkit.deploy.diff import differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.deploy.stack_plan import ResourceChange

HEAD, INTERFACE = "Head", "HeadInterface"
PARTS = frozenset({HEAD, head_volume.ATTACHMENT})  # go and come with the instance
# Properties that EC2 changes without a new instance, some of them after a stop:
# https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-ec2-instance.html
RESTARTING = frozenset({"InstanceType", "UserData"})
IN_PLACE = RESTARTING | {
    "DisableApiTermination",
    "IamInstanceProfile",
    "MetadataOptions",
    "PropagateTagsToVolumeOnCreation",
    "Tags",
}
LOST_DISK = "its root disk is lost: logs, and files that people keep there"
LOST_DATA = f"its root disk is lost, and with it: {head_volume.CONTENT}"
KEPT_DATA = f"its data volume goes to the new instance: {head_volume.CONTENT}"
NEW_VOLUME = "its data volume is replaced; a snapshot of the old one stays"


@dataclass(frozen=True, slots=True)
class NewHead:
    """The new head instance of a deploy, and its reasons."""

    reasons: tuple[str, ...]
    loses_disk: bool  # of an instance that is there
    keeps_data: bool = True  # the data volume goes to the new instance

    def __str__(self) -> str:
        lines = [f"± {HEAD}  AWS::EC2::Instance  (a new instance, by two updates of the stack)"]
        lines += [f"    {reason}" for reason in self.reasons]
        if self.loses_disk:
            lines.append(f"    {LOST_DISK if self.keeps_data else LOST_DATA}")
        lines += [f"    {KEPT_DATA}"] if self.keeps_data else []
        return "\n".join(lines)


def new_head(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    changes: Sequence[ResourceChange],
    *,
    stack_instance: str,
    lives: bool,
    requested: bool,
) -> NewHead | None:
    """Return the new head instance that a changed template needs, or None.

    `before` and `after` are the templates' resources; `stack_instance` is the id of the
    stack's head instance.
    """
    if HEAD not in before or not stack_instance:
        return None  # the update itself makes the instance
    moved = head_volume.is_replaced(before, after)
    keeps_data = head_volume.is_there(before) and not moved
    volume_reasons = [NEW_VOLUME] if moved else []
    if not lives:
        reason = f"its instance {stack_instance} was terminated, and its root disk with it"
        return NewHead((reason, *volume_reasons), loses_disk=False, keeps_data=keeps_data)
    reasons = [
        line
        for line in differences(_properties(before), _properties(after))
        if line.split(":")[0].split(".")[0].split("[")[0] not in IN_PLACE
    ]
    for change in changes:
        replaced = change.action == "Replace" or change.may_replace
        if change.logical_id == INTERFACE and replaced:
            reasons.append("its network interface is replaced")
        if change.logical_id == HEAD and change.action == "Replace" and not reasons:
            reasons.append("CloudFormation would replace it")
    reasons += volume_reasons
    if requested:
        reasons.append("--replace-head was given")
    return NewHead(tuple(reasons), loses_disk=True, keeps_data=keeps_data) if reasons else None


def restarts(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether the head instance must stop and start."""
    old, new = _properties(before), _properties(after)
    return bool(old and new) and any(
        differences(old.get(name), new.get(name)) for name in RESTARTING
    )


def _properties(resources: Mapping[str, Any]) -> dict[str, Any]:
    return dict(resources.get(HEAD, {}).get("Properties", {}))
