"""AssumeRole: what a call needs, whom a role trusts, and the tags that a session keeps.

Sources: IAM User Guide, "Pass session tags in AWS STS", "Role chaining" and "Policy evaluation
logic"; STS API reference, AssumeRole. moto lets everybody assume every role, and forgets the tags.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from moto.sts.responses import TokenResponse

from toolkit.local.aws.aws_errors import Refusal
from toolkit.local.aws.iam import policy
from toolkit.local.aws.iam.policy import Decision, Request
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.local.aws.moto_patches import Patches

CHAINED_SECONDS: Final = 3600
"""The longest session of a role that a role's session assumes."""
TAGS_FIELD: Final = "toolkit_tags"
"""Where moto's session keeps its tags."""
CALLER_NAMED, ACCOUNT_NAMED = "caller", "account"
"""How a principal may name a caller: itself, or only its account."""
_ROOT: Final = (ACCOUNT, f"arn:aws:iam::{ACCOUNT}:root")
_TAG: Final = re.compile(r"Tags\.member\.(\d+)\.Key")
_MAX_TAGS: Final = 50
_VALUE: Final = re.compile(r"[\w\s.:/=+@-]{0,256}")


def tags_of(params: Mapping[str, str]) -> dict[str, str]:
    """Return the session tags that a call passes."""
    numbers = [match[1] for name in params if (match := _TAG.fullmatch(name))]
    return {
        params[f"Tags.member.{number}.Key"]: params.get(f"Tags.member.{number}.Value", "")
        for number in numbers
    }


def requests(params: Mapping[str, str]) -> Iterator[Request]:
    """Return what a call needs: a second action when it passes tags."""
    tags = tags_of(params)
    context: dict[str, str | tuple[str, ...]] = {
        f"aws:RequestTag/{key}": value for key, value in tags.items()
    }
    if tags:
        context["aws:TagKeys"] = tuple(tags)
    resource = params.get("RoleArn", "")
    yield Request("sts:AssumeRole", resource, context)
    if tags:
        yield Request("sts:TagSession", resource, context)


def invalid(params: Mapping[str, str]) -> Refusal | None:
    """Return the refusal of a role's call that can't be, or None."""
    duration = int(params.get("DurationSeconds", CHAINED_SECONDS))
    if duration > CHAINED_SECONDS:
        return Refusal(
            "ValidationError",
            "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by "
            "role chaining",
        )
    tags = tags_of(params)
    if len(tags) > _MAX_TAGS or not all(map(_VALUE.fullmatch, tags.values())):
        return Refusal("ValidationError", "A session tag has a value that STS does not take")
    return None


def trusted(role: Any, caller: tuple[str, ...], own: Decision, request: Request) -> Decision:
    """Return what trust policy and the caller's own policies say.

    `caller` has the ARNs by which a policy may name the caller. A policy that names the account
    leaves the decision to the caller's own policies; one that names the caller itself decides.
    """
    document = role.assume_role_policy_document
    content = json.loads(document) if isinstance(document, str) else document
    listed = content.get("Statement", [])
    matching: list[Decision] = []
    for item in [listed] if isinstance(listed, dict) else listed:
        rest = {key: value for key, value in item.items() if key != "Principal"}
        (statement,) = policy.read("trust", {"Statement": [{**rest, "Resource": "*"}]})
        how = how_named(item.get("Principal", {}), caller)
        if not how or statement.match(request) is None:
            continue
        if not statement.allows:
            return Decision(allowed=False)
        matching.append(Decision(how == CALLER_NAMED or own.allowed, own.right))
    if own.right is not None and not own.allowed:
        return own
    return next((found for found in matching if found.allowed), Decision(allowed=False))


def how_named(principal: Any, caller: tuple[str, ...]) -> str:
    """Return how a principal names the caller; empty for not at all."""
    listed = principal.get("AWS", ()) if isinstance(principal, dict) else principal
    names = (listed,) if isinstance(listed, str) else tuple(listed)
    if any(name in caller for name in names):
        return CALLER_NAMED
    return ACCOUNT_NAMED if any(name in (*_ROOT, "*") for name in names) else ""


def words(arn: str, request: Request) -> str:
    """Return STS's words for a role that does not trust the caller."""
    what = f"{request.action} on resource: {request.resource}"
    return f"User: {arn} is not authorized to perform: {what}"


def install(patches: Patches) -> None:
    """Have sessions keep the tags that they were made with."""
    assume = TokenResponse.assume_role

    def assume_role(self: Any) -> Any:
        answer = assume(self)
        params = {name: values[0] for name, values in self.querystring.items()}
        setattr(answer.result["Credentials"], TAGS_FIELD, tags_of(params))
        return answer

    patches.replace(TokenResponse, "assume_role", assume_role)
