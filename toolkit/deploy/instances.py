"""Lists EC2 instances by their tags and states."""

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
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
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
