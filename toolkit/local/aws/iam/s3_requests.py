"""Actions, buckets, objects and condition keys of S3 calls.

Sources: Service Authorization Reference for Amazon S3; S3 User Guide, "Required permissions for
Amazon S3 API operations". Some names differ: HeadObject needs s3:GetObject, and every call of an
upload in parts needs s3:PutObject.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

from toolkit.local.aws.iam.policy import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DELETED: Final = re.compile(r"<Object>(.*?)</Object>", re.DOTALL)
_DELETED_KEY: Final = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_DELETED_VERSION: Final = re.compile(r"<VersionId>")
_ENTITIES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"))
_OBJECT: Final = {
    ("GET", ""): "GetObject",
    ("HEAD", ""): "GetObject",
    ("PUT", ""): "PutObject",
    ("DELETE", ""): "DeleteObject",
    ("GET", "uploadId"): "ListMultipartUploadParts",
    ("PUT", "uploadId"): "PutObject",
    ("POST", "uploadId"): "PutObject",
    ("POST", "uploads"): "PutObject",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("GET", "tagging"): "GetObjectTagging",
    ("PUT", "tagging"): "PutObjectTagging",
    ("GET", "versionId"): "GetObjectVersion",
    ("HEAD", "versionId"): "GetObjectVersion",
    ("DELETE", "versionId"): "DeleteObjectVersion",
}
_BUCKET: Final = {
    ("GET", ""): "ListBucket",
    ("HEAD", ""): "ListBucket",
    ("PUT", ""): "CreateBucket",
    ("DELETE", ""): "DeleteBucket",
    ("GET", "uploads"): "ListBucketMultipartUploads",
    ("GET", "versions"): "ListBucketVersions",
    ("GET", "location"): "GetBucketLocation",
    ("GET", "versioning"): "GetBucketVersioning",
    ("PUT", "versioning"): "PutBucketVersioning",
    ("GET", "policy"): "GetBucketPolicy",
    ("PUT", "policy"): "PutBucketPolicy",
    ("DELETE", "policy"): "DeleteBucketPolicy",
    ("GET", "encryption"): "GetEncryptionConfiguration",
}
_SUBRESOURCES: Final = frozenset(
    {"acl", "accelerate", "analytics", "attributes", "cors", "delete", "encryption", "inventory",
     "intelligent-tiering", "legal-hold", "lifecycle", "location", "logging", "metrics",
     "notification", "object-lock", "ownershipControls", "policy", "policyStatus",
     "publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select",
     "tagging", "torrent", "uploadId", "uploads", "versionId", "versioning", "versions", "website"}
)  # fmt: skip
"""Parameters that make another operation of the same method and path."""
_LISTS: Final = ("ListBucket", "ListBucketVersions")
"""Lists whose prefix a policy can name. The list of unfinished uploads has no such key."""
_LIST_KEYS: Final = {"prefix": "s3:prefix", "delimiter": "s3:delimiter", "max-keys": "s3:max-keys"}


def requests(environ: Mapping[str, Any], body: bytes) -> Iterator[Request] | None:
    """Return what a call needs, None for an unknown call."""
    method = str(environ["REQUEST_METHOD"])
    query = dict(parse_qsl(str(environ.get("QUERY_STRING", "")), keep_blank_values=True))
    bucket, key = place_of(environ)
    special = next((name for name in query if name in _SUBRESOURCES), "")
    if not bucket:
        return iter([Request("s3:ListAllMyBuckets", "*")]) if method == "GET" else None
    if not key and (method, special) == ("POST", "delete"):
        return _deleted(bucket, body)
    name = (_OBJECT if key else _BUCKET).get((method, special))
    if name is None:
        return None
    if key:
        return _on_object(environ, name, bucket, key)
    context = {}
    if name in _LISTS:
        context = {_LIST_KEYS[word]: query[word] for word in _LIST_KEYS if word in query}
    return iter([Request(f"s3:{name}", f"arn:aws:s3:::{bucket}", context)])


def place_of(environ: Mapping[str, Any]) -> tuple[str, str]:
    """Return bucket and key of a path-style request, each empty if absent."""
    # werkzeug has decoded the path already.
    bucket, _, key = str(environ.get("PATH_INFO") or "/").lstrip("/").partition("/")
    return bucket, key


def hides_absence(environ: Mapping[str, Any]) -> Request | None:
    """Return the right that turns 403 into 404 for missing objects.

    S3 API reference, GetObject and HeadObject: who may not list the bucket must not learn which
    keys are there.
    """
    bucket, key = place_of(environ)
    if str(environ["REQUEST_METHOD"]) not in ("GET", "HEAD") or not key:
        return None
    return Request("s3:ListBucket", f"arn:aws:s3:::{bucket}")


def _on_object(environ: Mapping[str, Any], name: str, bucket: str, key: str) -> Iterator[Request]:
    context = _write_keys(environ) if name == "PutObject" else {}
    yield Request(f"s3:{name}", f"arn:aws:s3:::{bucket}/{key}", context)
    source = unquote(str(environ.get("HTTP_X_AMZ_COPY_SOURCE", ""))).lstrip("/")
    if source:
        yield Request("s3:GetObject", f"arn:aws:s3:::{source.partition('?')[0]}")
    if name == "PutObject" and environ.get("HTTP_X_AMZ_TAGGING"):
        yield Request("s3:PutObjectTagging", f"arn:aws:s3:::{bucket}/{key}")
    if name == "PutObject" and environ.get("HTTP_X_AMZ_ACL"):
        yield Request("s3:PutObjectAcl", f"arn:aws:s3:::{bucket}/{key}")


def _write_keys(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the condition keys of a write.

    Parts do not make an object (S3 User Guide, "Enforce conditional writes").
    """
    query = dict(parse_qsl(str(environ.get("QUERY_STRING", "")), keep_blank_values=True))
    is_part = "uploads" in query or ("uploadId" in query and environ["REQUEST_METHOD"] == "PUT")
    keys = {"s3:ObjectCreationOperation": str(not is_part).lower()}
    if condition := environ.get("HTTP_IF_NONE_MATCH"):
        keys["s3:if-none-match"] = str(condition)
    return keys


def _deleted(bucket: str, body: bytes) -> Iterator[Request]:
    for item in _DELETED.findall(body.decode("utf-8", "replace")):
        name = _DELETED_KEY.search(item)
        key = name[1] if name else ""
        for entity, mark in _ENTITIES:
            key = key.replace(entity, mark)
        action = "DeleteObjectVersion" if _DELETED_VERSION.search(item) else "DeleteObject"
        yield Request(f"s3:{action}", f"arn:aws:s3:::{bucket}/{key}")
