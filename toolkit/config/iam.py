"""The section of cluster.yaml on IAM roles, and the check of their names."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from toolkit.config import types
from toolkit.config.raw import Finding, mapping
from toolkit.config.section import Section

# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
MAX_ROLE_NAME = 64
LONGEST_KIND = "compute"
"""The longest of the kinds that `toolkit.deploy` gives to a cluster's roles."""


class Iam(Section):
    """Settings of every IAM role that the toolkit makes, as the account asks for them."""

    permissions_boundary: Annotated[str, Field(pattern=types.BOUNDARY)] | None = None
    """The ARN of the policy that bounds what these roles may do."""
    path: Annotated[str, Field(pattern=types.IAM_PATH)] = "/"
    """The path of roles and instance profiles, such as /clusters/."""
    name_prefix: Annotated[str, Field(pattern=types.ROLE_PREFIX)] | None = None
    """The beginning of their names. Without it, CloudFormation chooses the names."""


def role_name(prefix: str, owner: str, region: str, kind: str) -> str:
    """Return a role's name.

    `owner` is the cluster, or the stack of image builds. The region is part of the name, because an
    account's roles are the same in all regions.
    """
    return f"{prefix}{owner}-{region}-{kind}"


def iam_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a prefix with which the names of roles are too long."""
    prefix = mapping(raw, "iam").get("name_prefix")
    region, cluster = mapping(raw, "aws").get("region"), raw.get("cluster")
    if not (isinstance(prefix, str) and isinstance(region, str) and isinstance(cluster, str)):
        return
    name = role_name(prefix, cluster, region, LONGEST_KIND)
    if len(name) > MAX_ROLE_NAME:
        message = (
            f"makes a role's name of {len(name)} characters, {name}: IAM takes {MAX_ROLE_NAME}"
        )
        yield ("iam", "name_prefix"), message
