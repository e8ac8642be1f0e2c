"""Sessions of SSM: the local cloud judges who may start one, and opens none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.core.exceptions import JsonRESTError
from moto.ssm.responses import SimpleSystemManagerResponse

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches


def install(patches: Patches) -> None:
    """Answer StartSession, which moto lacks, with SSM's refusal of a target."""

    def start_session(_response: Any) -> Any:
        message = "The local cloud opens no session: access.login in cluster.yaml says what does"
        raise JsonRESTError("TargetNotConnected", message)

    patches.replace(SimpleSystemManagerResponse, "start_session", start_session)
