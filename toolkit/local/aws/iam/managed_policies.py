"""The policies that AWS manages, in the account's partition alone.

moto looks for an access key in each of AWS's six partitions. It makes the 1,500 policies for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.iam.models import IAMBackend

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches


def install(patches: Patches) -> None:
    """Have moto make the policies of the partition `aws` alone."""
    make = IAMBackend._init_aws_policies  # noqa: SLF001 - moto asks nobody which it makes

    def policies(backend: Any) -> list[Any]:
        return make(backend) if backend.partition == "aws" else []

    patches.replace(IAMBackend, "_init_aws_policies", policies)
