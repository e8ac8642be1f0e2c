"""A judge of IAM policies that decides as AWS does.

A Deny wins, and a missing Allow refuses. Only the elements, operators and keys of the toolkit's
policies are known. Any other raises, so that no policy is taken for tighter or wider than it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ELEMENTS = {"Sid", "Effect", "Action", "Resource", "Condition"}


@dataclass(frozen=True, slots=True)
class Request:
    """An action on a resource.

    `context` has the condition keys that AWS would send along.
    """

    action: str
    resource: str
    context: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


def allowed(statements: Iterable[Mapping[str, Any]], request: Request) -> bool:
    """Tell whether these statements together allow the request."""
    effects = {item["Effect"] for item in statements if _matches(item, request)}
    return effects == {"Allow"}


def _matches(statement: Mapping[str, Any], request: Request) -> bool:
    unknown = set(statement) - _ELEMENTS
    if unknown:
        raise NotImplementedError(f"policy elements {sorted(unknown)}")
    return (
        any(
            _like(pattern.lower(), request.action.lower()) for pattern in _list(statement["Action"])
        )
        and any(_like(pattern, request.resource) for pattern in _list(statement["Resource"]))
        and all(
            _holds(operator, key, _list(values), request)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, key: str, wanted: list[str], request: Request) -> bool:
    """Judge one condition.

    A key that the request lacks fails the condition, but for `ForAllValues`.
    """
    found = _context(request, key)
    match operator:
        case "StringEquals" | "Bool":
            return len(found) == 1 and found[0] in wanted
        case "StringLike":
            return len(found) == 1 and any(_like(pattern, found[0]) for pattern in wanted)
        case "ForAllValues:StringLike":
            return all(any(_like(pattern, value) for pattern in wanted) for value in found)
        case "ForAllValues:StringEquals":
            return set(found) <= set(wanted)
        case _:
            raise NotImplementedError(f"condition operator {operator}")


def _context(request: Request, key: str) -> list[str]:
    """Return the values of a key of the request.

    The name of a key has no case. A tag's key within it has.
    """
    prefix, slash, tag = key.partition("/")
    wanted = prefix.lower() + slash + tag
    for name, value in request.context.items():
        before, mark, after = name.partition("/")
        if before.lower() + mark + after == wanted:
            return _list(value)
    return []


def _like(pattern: str, text: str) -> bool:
    words = {"*": ".*", "?": "."}
    return bool(
        re.fullmatch("".join(words.get(c) or re.escape(c) for c in pattern), text, re.DOTALL)
    )


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
