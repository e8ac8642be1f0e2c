"""The policies of a role as they are now, read out of moto's IAM and kept until they change."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from moto.iam.models import iam_backends

from toolkit.local.aws.iam import policy
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from toolkit.local.aws.iam.policy import Statement


def role_named(name: str) -> Any:
    """Return moto's role of that name, or None."""
    roles = iam_backends[ACCOUNT]["aws"].roles.values()
    return next((role for role in roles if role.name == name), None)


def statements_of(role: Any) -> tuple[Statement, ...]:
    """Return the statements of all inline and managed policies. Raises UnknownPolicy."""
    documents = [(name, _text(document)) for name, document in role.policies.items()]
    documents += [(item.name, _document(item)) for item in role.managed_policies.values()]
    return _read(tuple(documents))


def boundary_of(role: Any) -> tuple[Statement, ...] | None:
    """Return the statements of a role's permissions boundary, None without one.

    Nothing that the boundary does not allow is allowed (IAM User Guide, "Permissions boundaries").
    """
    arn = role.permissions_boundary_arn
    if not arn:
        return None
    found = managed_policy(arn)
    if found is None:
        return ()  # its policy was deleted: nothing is allowed
    return _read(((found.name, _document(found)),))


def managed_policy(arn: str) -> Any:
    """Return moto's managed policy of that ARN, or None."""
    return iam_backends[ACCOUNT]["aws"].managed_policies.get(arn)


@functools.lru_cache(maxsize=256)
def _read(documents: tuple[tuple[str, str], ...]) -> tuple[Statement, ...]:
    """Read policies once: every call of a role is judged by them."""
    return tuple(
        statement for name, text in documents for statement in policy.read(name, json.loads(text))
    )


def _document(managed: Any) -> str:
    return _text(next(item.document for item in managed.versions if item.is_default))


def _text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document)
