"""Buckets of stacks with their versioning, and bucket policies. moto's stacks have neither.

Sources: CloudFormation template reference, AWS::S3::Bucket and AWS::S3::BucketPolicy.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from moto.core.common_models import CloudFormationModel
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket, s3_backends

from toolkit.local.aws.stack_type import StackType
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.aws.moto_patches import Patches

_PARTITION: Final = "aws"


class StackBucketPolicy(StackType, CloudFormationModel):  # type: ignore[misc]  # moto is untyped here
    """The policy of a bucket; Ref gives the bucket's name."""

    TYPE = "AWS::S3::BucketPolicy"
    NAME_PROPERTY = "Bucket"

    def __init__(self, bucket: str) -> None:
        """Stand for a policy of the backend."""
        self.bucket = bucket

    @property
    def physical_resource_id(self) -> str:
        """Return what Ref gives."""
        return self.bucket

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, *_place: Any, **_: Any
    ) -> StackBucketPolicy:
        """Write the policy a template describes."""
        _write(resource_name, cloudformation_json["Properties"])
        return cls(resource_name)

    @classmethod
    def update_from_cloudformation_json(
        cls, /, *, original_resource: Any, cloudformation_json: Any, **_: Any
    ) -> StackBucketPolicy:
        """Write the policy anew."""
        resource: StackBucketPolicy = original_resource
        _write(resource.bucket, cloudformation_json["Properties"])
        return resource

    def delete(self, _account_id: str, _region_name: str) -> None:
        """Delete the policy; that of an absent bucket is deleted."""
        bucket = s3_backends[ACCOUNT][_PARTITION].buckets.get(self.bucket)
        if bucket is not None:
            bucket.policy = None


def _write(bucket: str, properties: Mapping[str, Any]) -> None:
    text = json.dumps(properties["PolicyDocument"], default=str)
    s3_backends[ACCOUNT][_PARTITION].put_bucket_policy(bucket, text.encode())


def install(patches: Patches) -> None:
    """Have stacks set versioning, and the gate alone judge bucket policies."""
    create = FakeBucket.create_from_cloudformation_json
    update = FakeBucket.update_from_cloudformation_json

    def create_bucket(
        _cls: Any, name: str, body: Mapping[str, Any], *place: Any, **more: Any
    ) -> Any:
        bucket = create(name, body, *place, **more)
        _set_versioning(bucket, body.get("Properties", {}))
        return bucket

    def update_bucket(_cls: Any, /, **given: Any) -> Any:
        bucket = update(**given)
        _set_versioning(bucket, given["cloudformation_json"].get("Properties", {}))
        return bucket

    def leave_to_the_gate(_bucket: Any, _action: str, _resource: str) -> Any:
        # moto reads neither conditions nor most principals.
        return PermissionResult.NEUTRAL

    patches.replace(FakeBucket, "create_from_cloudformation_json", classmethod(create_bucket))
    patches.replace(FakeBucket, "update_from_cloudformation_json", classmethod(update_bucket))
    patches.replace(FakeBucket, "get_permission", leave_to_the_gate)


def _set_versioning(bucket: Any, properties: Mapping[str, Any]) -> None:
    """Set a bucket's versioning; once enabled it can only be suspended."""
    status = (properties.get("VersioningConfiguration") or {}).get("Status")
    bucket.versioning_status = status or (bucket.versioning_status and "Suspended")
