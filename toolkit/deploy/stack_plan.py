"""A stack's plan: the changes between two templates. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from ruamel.yaml import YAML

from toolkit.deploy.diff import differences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_cloudformation.type_defs import DescribeChangeSetOutputTypeDef

# Resources whose replacement destroys an instance or data for good.
PRECIOUS = {
    "AWS::EC2::Instance",
    "AWS::EC2::NetworkInterface",
    "AWS::EC2::Volume",
    "AWS::FSx::FileSystem",
    "AWS::S3::Bucket",
}


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A change of one resource, and the properties that cause it."""

    action: Literal["Add", "Modify", "Remove", "Replace"]
    logical_id: str
    resource_type: str
    details: tuple[str, ...] = ()
    may_replace: bool = False  # known only after execution

    def __str__(self) -> str:
        sign = {"Add": "+", "Modify": "~", "Remove": "-", "Replace": "±"}[self.action]
        head = f"{sign} {self.logical_id}  {self.resource_type}"
        head += "  (may be replaced)" if self.may_replace else ""
        return "\n".join([head, *(f"    {line}" for line in self.details)])


@dataclass(frozen=True, slots=True)
class StackPlan:
    """A change set that waits for execution."""

    stack: str
    creates_stack: bool
    changes: tuple[ResourceChange, ...]
    change_set: str = ""  # its id; "" without changes
    before: Mapping[str, Any] = field(default_factory=dict)  # the deployed resources
    note: str = ""  # on the stack's state, for people

    @property
    def destructive_changes(self) -> tuple[ResourceChange, ...]:
        """Return the changes that delete, or may delete, an existing resource."""
        actions = {"Remove", "Replace"}
        return tuple(item for item in self.changes if item.action in actions or item.may_replace)


def resources(template: str) -> dict[str, Any]:
    """Return a template's resources; short forms such as !Ref stay plain values."""
    document = _document(template)
    return dict(document.get("Resources", {})) if hasattr(document, "get") else {}


# A command asks for the same one or two templates several times, and a template takes 0.3 s.
@lru_cache(maxsize=4)
def _document(template: str) -> Any:
    return YAML(typ="rt").load(template)


def resource_changes(
    description: DescribeChangeSetOutputTypeDef, before: Mapping[str, Any], template: str
) -> tuple[ResourceChange, ...]:
    changes = []
    for item in description["Changes"]:
        change = item.get("ResourceChange", {})
        logical_id, action = change.get("LogicalResourceId", ""), change.get("Action", "Modify")
        details: tuple[str, ...] = ()
        if action == "Modify":  # a first deploy has none, and reads no template
            after = resources(template).get(logical_id, {})
            details = differences(before.get(logical_id, {}), after)
            if not details and not change.get("Details"):
                continue
        kind, replacement = change.get("ResourceType", ""), change.get("Replacement")
        changes.append(
            ResourceChange(
                action="Replace" if replacement == "True" else _action(action),
                logical_id=logical_id,
                resource_type=kind,
                details=details,
                may_replace=replacement == "Conditional" and kind in PRECIOUS,
            )
        )
    return tuple(changes)


def compared_templates(before: Mapping[str, Any], template: str) -> tuple[ResourceChange, ...]:
    """Return the changes between two templates, without CloudFormation's own judgement.

    Only a change of properties may replace a resource; its order among others never does.
    """
    after = resources(template)
    changes = []
    for logical_id in dict.fromkeys((*after, *before)):
        old, new = before.get(logical_id, {}), after.get(logical_id, {})
        kind = str((new or old).get("Type", ""))
        details = differences(old, new)
        if logical_id not in before:
            changes.append(ResourceChange("Add", logical_id, kind))
        elif logical_id not in after:
            changes.append(ResourceChange("Remove", logical_id, kind))
        elif details:
            may_replace = kind in PRECIOUS and old.get("Properties") != new.get("Properties")
            changes.append(
                ResourceChange("Modify", logical_id, kind, details, may_replace=may_replace)
            )
    return tuple(changes)


def _action(action: str) -> Literal["Add", "Modify", "Remove"]:
    if action in {"Add", "Import"}:
        return "Add"
    return "Remove" if action == "Remove" else "Modify"
