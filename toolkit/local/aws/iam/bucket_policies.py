"""Policies of buckets, judged together with those of the caller's role.

Sources: IAM User Guide, "Policy evaluation logic" (requests within one account) and "AWS JSON
policy elements: Principal". moto keeps the text of a policy, and judges a small part of it.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from moto.s3.models import s3_backends

from toolkit.local.aws.iam import policy
from toolkit.local.aws.iam.assume_role import CALLER_NAMED, how_named
from toolkit.local.aws.iam.denials import BUCKET_POLICY
from toolkit.local.aws.iam.policy import Decision, Request
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.local.aws.iam.policy import Statement


def judged(own: Decision, request: Request, caller: tuple[str, ...]) -> Decision:
    """Return what the caller's own policies and the bucket's say together.

    `caller` has the ARNs by which a policy may name the caller. A Deny of either wins, and an
    Allow of either is enough. A policy that names the account leaves it to the caller's own.
    """
    allowed: Decision | None = None
    for principal, statement in _statements(request.resource):
        how = CALLER_NAMED if principal == "*" else how_named(principal, caller)
        right = statement.match(request) if how else None
        if right is None:
            continue
        if not statement.allows:
            return Decision(allowed=False, right=right)
        if how == CALLER_NAMED:
            allowed = allowed or Decision(allowed=True, right=right)
    denied = own.right is not None and not own.allowed
    return own if own.allowed or denied or allowed is None else allowed


def _statements(resource: str) -> Iterator[tuple[Any, Statement]]:
    name = resource.removeprefix("arn:aws:s3:::").partition("/")[0]
    bucket = s3_backends[ACCOUNT]["aws"].buckets.get(name)
    if bucket is not None and bucket.policy:
        yield from _read(bucket.policy)


@functools.lru_cache(maxsize=64)
def _read(text: bytes | str) -> tuple[tuple[Any, Statement], ...]:
    """Read a policy once, not for each call on its bucket.

    Raises UnknownPolicy.
    """
    listed = json.loads(text)["Statement"]
    found = []
    for place, item in enumerate([listed] if isinstance(listed, dict) else listed):
        rest = {key: value for key, value in item.items() if key != "Principal"}
        (statement,) = policy.read(BUCKET_POLICY, {"Statement": [{"Sid": str(place), **rest}]})
        found.append((item.get("Principal", {}), statement))
    return tuple(found)
