"""Conditions of IAM policies: operators, keys and values, decided as AWS does. Pure.

Source: IAM User Guide, "Condition operators" and "Multivalued context keys". An operator or a key
that is not listed here raises `UnknownPolicy` when a policy is read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

Context = Mapping[str, str | tuple[str, ...]]

FOR_ALL, FOR_ANY = "ForAllValues", "ForAnyValue"
_IF_EXISTS: Final = "IfExists"
_ARN_PARTS: Final = 6
KEYS: Final = frozenset(
    key.lower()
    for key in (
        "aws:PrincipalAccount", "aws:PrincipalArn", "aws:RequestedRegion", "aws:SecureTransport",
        "aws:TagKeys", "cloudwatch:namespace",
        "ec2:AvailabilityZone", "ec2:CreateAction", "ec2:Encrypted", "ec2:ImageID",
        "ec2:InstanceID", "ec2:InstanceMarketType", "ec2:InstanceMetadataTags",
        "ec2:InstanceProfile", "ec2:InstanceType", "ec2:IsLaunchTemplateResource",
        "ec2:LaunchTemplate", "ec2:MetadataHttpEndpoint", "ec2:MetadataHttpPutResponseHopLimit",
        "ec2:MetadataHttpTokens", "ec2:Region", "ec2:RoleDelivery", "ec2:SourceInstanceARN",
        "ec2:Subnet", "ec2:VolumeSize", "ec2:VolumeType", "ec2:Vpc",
        "iam:AssociatedResourceArn", "iam:AWSServiceName", "iam:PassedToService",
        "s3:delimiter", "s3:if-none-match", "s3:max-keys", "s3:ObjectCreationOperation",
        "s3:prefix",
    )
)  # fmt: skip
"""Keys that the local cloud fills in, for the actions that have them on AWS."""
TAG_KEYS: Final = (
    "aws:requesttag", "aws:resourcetag", "aws:principaltag", "ec2:resourcetag", "ssm:resourcetag",
)  # fmt: skip
"""Keys of which each tag makes one, after a slash."""


class UnknownPolicy(NotImplementedError):  # noqa: N818 - the name states the fault
    """A policy has an element, an operator or a key that the evaluator does not know."""


@functools.cache
def pattern_of(text: str) -> re.Pattern[str]:
    """Return a policy's wildcards as a regular expression."""
    words = {"*": ".*", "?": "."}
    return re.compile("".join(words.get(c) or re.escape(c) for c in text), re.DOTALL)


def like(pattern: str, text: str) -> bool:
    """Return whether a text fits a pattern with wildcards."""
    return pattern_of(pattern).fullmatch(text) is not None


def _arn_like(pattern: str, text: str) -> bool:
    """Compare two ARNs part by part: no wildcard crosses a colon."""
    wanted, found = pattern.split(":", _ARN_PARTS - 1), text.split(":", _ARN_PARTS - 1)
    return len(wanted) == len(found) and all(map(like, wanted, found))


def _same_word(wanted: str, found: str) -> bool:
    return wanted.lower() == found.lower()


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    def test(wanted: str, found: str) -> bool:
        try:
            return compare(float(found), float(wanted))
        except ValueError:
            return False

    return test


_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "StringEquals": str.__eq__,
    "StringEqualsIgnoreCase": _same_word,
    "StringLike": like,
    "Bool": _same_word,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
    "NumericEquals": _number(lambda found, wanted: found == wanted),
    "NumericLessThan": _number(lambda found, wanted: found < wanted),
    "NumericLessThanEquals": _number(lambda found, wanted: found <= wanted),
    "NumericGreaterThan": _number(lambda found, wanted: found > wanted),
    "NumericGreaterThanEquals": _number(lambda found, wanted: found >= wanted),
}
_NEGATED: Final[Mapping[str, str]] = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NumericNotEquals": "NumericEquals",
}


def check(operator: str, key: str) -> None:
    """Raise UnknownPolicy for an operator or a key that can't be judged."""
    quantifier, _, name = operator.rpartition(":")
    base = name.removesuffix(_IF_EXISTS)
    if quantifier not in ("", FOR_ALL, FOR_ANY) or base not in {*_TESTS, *_NEGATED, "Null"}:
        raise UnknownPolicy(f"condition operator {operator}")
    before, _, _ = key.partition("/")
    if key.lower() not in KEYS and before.lower() not in TAG_KEYS:
        raise UnknownPolicy(f"condition key {key}")


def holds(operator: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    """Judge one key of one operator against a request's context."""
    quantifier, _, name = operator.rpartition(":")
    found = values_of(context, key)
    if name == "Null":
        return (not found) == (wanted[0].lower() == "true")
    if not found and name.endswith(_IF_EXISTS):
        return True
    base = name.removesuffix(_IF_EXISTS)
    negated = base in _NEGATED
    test = _TESTS[_NEGATED.get(base, base)]

    def fits(value: str) -> bool:
        return any(test(one, value) for one in wanted) is not negated

    if quantifier == FOR_ALL:
        return all(map(fits, found))  # true also without the key: IAM User Guide, as above
    if quantifier == FOR_ANY:
        return any(map(fits, found))
    if not found:
        return negated
    # A key with several values needs a quantifier: without one nothing is allowed by it.
    return len(found) == 1 and fits(found[0])


def values_of(context: Context, key: str) -> tuple[str, ...]:
    """Return a key's values. A tag's name alone has a case."""
    value = context.get(key)
    if value is None:
        wanted = _plain(key)
        value = next((context[name] for name in context if _plain(name) == wanted), ())
    return (value,) if isinstance(value, str) else tuple(value)


@functools.cache
def _plain(key: str) -> str:
    prefix, slash, tag = key.partition("/")
    return prefix.lower() + slash + tag
