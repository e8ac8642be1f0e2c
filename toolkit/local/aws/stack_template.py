"""The order in which to make a CloudFormation template's resources. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SUB = re.compile(r"\$\{(?!!)([^}.]+)(?:\.[^}]+)?\}")
PSEUDO = "AWS::"
# Resources that take an address, or check the resources around them, when they are made.
_TAKERS = frozenset({"AWS::EC2::NatGateway", "AWS::EC2::VPCEndpoint", "AWS::FSx::FileSystem"})
# Resources that change another one: what is made too early misses them.
_ATTACHMENTS = frozenset(
    {
        "AWS::EC2::Route",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SubnetRouteTableAssociation",
        "AWS::EC2::VolumeAttachment",
        "AWS::EC2::VPCGatewayAttachment",
        "AWS::IAM::Policy",
        "AWS::S3::BucketPolicy",
    }
)


def references(value: Any, local: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield every name that a part of a template refers to.

    `local` are Sub's own variables.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _function_references(str(key), inner, local)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from references(inner, local)


def _function_references(key: str, inner: Any, local: frozenset[str]) -> Iterator[str]:
    if key == "Ref":
        yield str(inner)
    elif key == "Fn::GetAtt":
        yield str(inner).split(".", 1)[0] if isinstance(inner, str) else str(inner[0])
    elif key == "Fn::Sub":
        text, variables = inner if isinstance(inner, list) else (inner, {})
        yield from references(variables, local)
        yield from (name for name in _SUB.findall(str(text)) if name not in variables)
    elif key == "DependsOn":
        yield from [inner] if isinstance(inner, str) else inner
    elif key == "Condition" and isinstance(inner, str):
        return
    else:
        yield from references(inner, local)


def fixed_addresses(value: Any) -> Iterator[str]:
    """Yield the private addresses that a part of a template asks for."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "PrivateIpAddress" and isinstance(inner, str):
                yield inner
            else:
                yield from fixed_addresses(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from fixed_addresses(inner)


def order(template: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the resources in the worst order that their dependencies allow.

    CloudFormation makes everything at once that does not depend on each other, so any
    order may happen
    (https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-attribute-dependson.html).
    Here the resources that take or check something come first, with only what they name.
    Those that they might need without naming them come last. Raises ValueError for a circle.
    """
    resources: Mapping[str, Any] = template["Resources"]
    dependencies = {
        name: [
            reference
            for reference in dict.fromkeys(references(body))
            if reference in resources and reference != name
        ]
        for name, body in resources.items()
    }
    visited_names: dict[str, None] = {}
    for name in sorted(resources, key=lambda name: _lateness(resources[name])):
        _visit(name, dependencies, visited_names, ())
    return tuple(visited_names)


def _lateness(body: Mapping[str, Any]) -> int:
    kind = body.get("Type")
    if kind in _TAKERS:
        return 0
    if kind == "AWS::EC2::Instance":
        return 1
    return 3 if kind in _ATTACHMENTS else 2


def _visit(
    name: str,
    dependencies: Mapping[str, Sequence[str]],
    visited_names: dict[str, None],
    path: tuple[str, ...],
) -> None:
    if name in visited_names:
        return
    if name in path:
        circle = ", ".join(sorted(path[path.index(name) :]))
        raise ValueError(f"Circular dependency between resources: [{circle}]")
    for dependency in dependencies[name]:
        _visit(dependency, dependencies, visited_names, (*path, name))
    visited_names[name] = None


def unresolved(template: Mapping[str, Any]) -> tuple[str, ...]:
    """Return referenced names that are neither resource nor parameter."""
    defined_names = {*template["Resources"], *(template.get("Parameters") or {})}
    referenced_names = dict.fromkeys(references(template["Resources"]))
    return tuple(
        name
        for name in referenced_names
        if name not in defined_names and not name.startswith(PSEUDO)
    )
