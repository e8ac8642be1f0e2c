"""Identity policies, decided as AWS does: a Deny wins, and a missing Allow refuses. Pure.

Source: IAM User Guide, "Policy evaluation logic" and "IAM JSON policy element reference". A policy
is checked as a whole when it is read: an element that is not known raises `UnknownPolicy`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from toolkit.local.aws.iam import conditions
from toolkit.local.aws.iam.conditions import UnknownPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolkit.local.aws.iam.conditions import Context

_ELEMENTS: Final = {
    "Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition",
}  # fmt: skip
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_LITERALS: Final = {"*": "[*]", "?": "[?]", "$": "$"}


@dataclass(frozen=True, slots=True)
class Request:
    """An action on a resource.

    `context` has the condition keys that AWS would send along.
    """

    action: str
    resource: str
    context: Context = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """An action on a resource that a statement names: the smallest thing that it gives."""

    policy: str
    statement: str
    action: str
    resource: str


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that was read and checked."""

    policy: str
    name: str
    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    other_actions: bool = False
    """NotAction: the statement is about all actions but these."""
    other_resources: bool = False

    def rights(self) -> set[Right]:
        """Return every pair of action and resource that the statement names."""
        return {
            Right(self.policy, self.name, action, resource)
            for action in self.actions
            for resource in self.resources
        }

    def match(self, request: Request) -> Right | None:
        """Return the pair that fits a request, else None."""
        action = _first(self.actions, request.action, request.context, lower=True)
        if (action is None) is not self.other_actions:
            return None
        resource = _first(self.resources, request.resource, request.context)
        if (resource is None) is not self.other_resources:
            return None
        for operator, key, values in self.conditions:
            filled = [_fill(value, request.context) for value in values]
            wanted = [text for text in filled if text is not None]
            if len(wanted) < len(filled):
                return None  # a variable without a value fits nothing
            if not conditions.holds(operator, key, wanted, request.context):
                return None
        return Right(
            self.policy, self.name, action or self.actions[0], resource or self.resources[0]
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a request, and the right that decided it: none for a missing Allow."""

    allowed: bool
    right: Right | None = None


def read(policy: str, document: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Return a document's statements. Raises UnknownPolicy."""
    listed = document["Statement"]
    items = [listed] if isinstance(listed, dict) else listed
    return tuple(_statement(policy, item, place) for place, item in enumerate(items))


def decide(statements: Iterable[Statement], request: Request) -> Decision:
    """Return what these statements together say to a request."""
    first: Right | None = None
    for statement in statements:
        if first is not None and statement.allows:
            continue
        right = statement.match(request)
        if right is None:
            continue
        if not statement.allows:
            return Decision(allowed=False, right=right)
        first = right
    return Decision(first is not None, first)


def _statement(policy: str, item: Mapping[str, Any], place: int) -> Statement:
    unknown = set(item) - _ELEMENTS
    if unknown:
        raise UnknownPolicy(f"policy elements {sorted(unknown)}")
    if item["Effect"] not in ("Allow", "Deny"):
        raise UnknownPolicy(f"effect {item['Effect']}")
    rows = []
    for operator, keys in item.get("Condition", {}).items():
        for key, values in keys.items():
            conditions.check(operator, key)
            rows.append((operator, key, tuple(map(_text, _list(values)))))
    return Statement(
        policy=policy,
        name=str(item.get("Sid") or place),
        allows=item["Effect"] == "Allow",
        actions=_list(item.get("Action") or item["NotAction"]),
        resources=_list(item.get("Resource") or item["NotResource"]),
        conditions=tuple(rows),
        other_actions="NotAction" in item,
        other_resources="NotResource" in item,
    )


def _first(
    patterns: tuple[str, ...], text: str, context: Context, *, lower: bool = False
) -> str | None:
    """Return the first pattern that fits; actions have no case."""
    for pattern in patterns:
        filled = pattern if "${" not in pattern else _fill(pattern, context)
        if filled is None:
            continue
        if filled == "*" or (
            conditions.like(filled.lower(), text.lower())
            if lower
            else conditions.like(filled, text)
        ):
            return pattern
    return None


def _fill(text: str, context: Context) -> str | None:
    """Return a text with its variables' values; None when one is missing.

    Source: IAM User Guide, "IAM policy elements: Variables and tags". A statement whose variable
    has no value fits nothing.
    """
    if "${" not in text:
        return text
    filled, end = "", 0
    for match in _VARIABLE.finditer(text):
        if match[1] in _LITERALS:
            raise UnknownPolicy(f"policy variable {match[0]}")
        values = conditions.values_of(context, match[1])
        if len(values) != 1 or any(mark in values[0] for mark in "*?"):
            return None  # a wildcard in a value is no wildcard on AWS; here it gives no right
        filled += text[end : match.start()] + values[0]
        end = match.end()
    return filled + text[end:]


def _list(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
