"""Objects of S3, several fetched at once. One that S3 refuses hides no other.

An error that concerns more than one object is raised: S3 is out of reach, or the credentials
are no longer valid.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from toolkit.accounting.set_aside import REFUSED, SetAside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mypy_boto3_s3 import S3Client

_READERS: Final = 8
_ABSENT: Final = frozenset({"NoSuchKey", "InvalidObjectState"})
"""The object was deleted since the listing, or is in an archive."""
_KMS_CODES: Final = ("DisabledException", "NotFoundException", "KMSInvalidStateException")
_DENIED: Final = frozenset({"AccessDenied", *(f"KMS.{code}" for code in _KMS_CODES)})
"""The credentials may not read the object, or the key of its bytes is gone."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """S3's answer for an object that it does not give."""

    error: ClientError

    @property
    def code(self) -> str:
        """Return S3's code of the error."""
        return self.error.response["Error"]["Code"]

    @property
    def is_denial(self) -> bool:
        """Return whether the object is there, and may not be read."""
        return self.code in _DENIED

    def set_aside(self, key: str) -> SetAside:
        """Return the object as a report names it."""
        return SetAside(key, f"{REFUSED} ({self.code})")


def fetched(
    s3: S3Client, bucket: str, keys: Sequence[str], *, refused_before: Collection[str] = ()
) -> Iterator[bytes | Refusal]:
    """Yield the bytes of each object, by the order of keys.

    Raises ClientError. Credentials that may read none of several objects are wrong for all of
    them, so that is raised at the end. Objects that were refused before tell nothing of them.
    """

    def fetch(key: str) -> bytes | Refusal:
        try:
            return s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            refusal = Refusal(error)
            if refusal.is_denial or refusal.code in _ABSENT:
                return refusal
            raise

    denials: list[ClientError] = []
    with ThreadPoolExecutor(_READERS) as pool:
        for key, body in zip(keys, pool.map(fetch, keys), strict=True):
            if isinstance(body, Refusal) and body.is_denial and key not in refused_before:
                denials.append(body.error)
            yield body
    if len(denials) == len(set(keys).difference(refused_before)) > 1:
        raise denials[0]
