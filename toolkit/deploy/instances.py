"""Lists EC2 instances by their tags, ids and states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

RUNNING = ("pending", "running")
NOT_TERMINATING = (*RUNNING, "stopping", "stopped")
NOT_TERMINATED = (*NOT_TERMINATING, "shutting-down")


def find(ec2: EC2Client, tags: Mapping[str, str], states: Sequence[str]) -> list[InstanceTypeDef]:
    """Return the instances with all these tags in one of these states."""
    return _find(ec2, {f"tag:{key}": value for key, value in tags.items()}, states)


def find_by_id(ec2: EC2Client, instance_id: str, states: Sequence[str]) -> InstanceTypeDef | None:
    """Return an instance in one of these states, or None.

    EC2 refuses the id itself once it has forgotten a terminated instance.
    """
    return next(iter(_find(ec2, {"instance-id": instance_id}, states)), None)


def _find(
    ec2: EC2Client, wanted: Mapping[str, str], states: Sequence[str]
) -> list[InstanceTypeDef]:
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    filters.append({"Name": "instance-state-name", "Values": list(states)})
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)  # type: ignore[arg-type]
    return [
        instance
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    ]


def tag_values(resource: Any) -> dict[str, str]:
    """Return the tags of an AWS resource as a dict."""
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", ())}
