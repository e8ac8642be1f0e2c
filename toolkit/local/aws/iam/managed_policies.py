"""The policies that AWS manages, in the account's partition alone.

moto looks for an access key in each of AWS's six partitions. It makes the 1,500 policies for each.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from moto.iam import models
from moto.iam.models import IAMBackend

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches

_made: dict[str, list[Any]] = {}
"""The policies by account; the next cloud of this process copies them."""


def install(patches: Patches) -> None:
    """Have moto make the policies of one partition, and once."""
    make = IAMBackend._init_aws_policies  # noqa: SLF001 - moto asks nobody which it makes

    def policies(backend: Any) -> list[Any]:
        if backend.partition != "aws":
            return []
        if backend.account_id not in _made:
            _made[backend.account_id] = make(backend)
        # A policy counts its attachments; of its documents nobody makes others.
        return [copy.copy(policy) for policy in _made[backend.account_id]]

    patches.replace(models, "load_iam_aws_managed_policies", lambda: True)
    patches.replace(IAMBackend, "_init_aws_policies", policies)
