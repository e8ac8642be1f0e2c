"""Templates that CloudFormation reads from S3.

moto knows addresses of AWS alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.responses import CloudFormationResponse
from moto.s3.exceptions import S3ClientError
from moto.s3.models import s3_backends

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches


def install(patches: Patches) -> None:
    """Let CloudFormation read a template at this cloud's own endpoint."""

    def read(response: Any, template_url: str) -> str:
        backend = s3_backends[response.current_account][response.partition]
        return _read(backend, template_url)

    patches.replace(CloudFormationResponse, "_get_stack_from_s3_url", read)


def _read(backend: Any, template_url: str) -> str:
    """Return the object's text.

    At an address of AWS, the bucket may be in the host's name.
    """
    parts = urlsplit(template_url)
    host, path = parts.hostname or "", parts.path.lstrip("/")
    if host.endswith(".amazonaws.com") and not host.startswith("s3"):
        path = f"{host.partition('.')[0]}/{path}"
    bucket, _, key = path.partition("/")
    try:
        found = backend.get_object(bucket, key)
    except S3ClientError as error:
        raise ValidationError(message=f"S3 error: {error.message}") from error
    if found is None:
        raise ValidationError(message="S3 error: The specified key does not exist.")
    return str(found.value.decode())
