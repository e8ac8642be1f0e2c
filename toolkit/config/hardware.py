"""Checks what instance types can't do: x86_64 images, EFA, and disks smaller than the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.config.instance_types import (
    ARM,
    FIRST_CARD_WITHOUT_EFA,
    efa_interfaces,
    family,
    types_with_efa,
)
from toolkit.config.raw import items, mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding, KeyPath

IMAGE_GIB = 30
"""The disk of an image; no instance of it has a smaller one."""


def hardware_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield every instance type and disk that EC2 would refuse."""
    for path, name in _types(raw):
        if family(name) in ARM:
            yield path, f"{name} has ARM processors, and images are built for x86_64"
    for pool_name, pool in mapping(raw, "pools").items():
        yield from _efa(("pools", pool_name, "offerings"), pool)
    for section in ("head", "login_nodes"):
        yield from _root_disk(section, mapping(raw, section).get("root_gib"))


def _root_disk(section: str, root_gib: Any) -> Iterator[Finding]:
    """Yield a root disk that is smaller than the image."""
    if isinstance(root_gib, int) and root_gib < IMAGE_GIB:
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EbsBlockDevice.html:
        # the volume must be as large as the snapshot.
        message = f"expected at least {IMAGE_GIB}, the size of the image, found {root_gib}"
        yield (section, "root_gib"), message


def _types(raw: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    for section, key in (
        ("head", "instance_type"),
        ("login_nodes", "instance_type"),
        ("images", "builder_type"),
    ):
        name = mapping(raw, section).get(key)
        if isinstance(name, str):
            yield (section, key), name
    for pool_name, pool in mapping(raw, "pools").items():
        for index, name in _offered(pool):
            yield ("pools", pool_name, "offerings", index, "type"), name


def _offered(pool: Any) -> list[tuple[int, str]]:
    return [
        (index, offering["type"])
        for index, offering in enumerate(items(pool, "offerings"))
        if isinstance(offering, dict) and isinstance(offering.get("type"), str)
    ]


def _efa(offerings: KeyPath, pool: Any) -> Iterator[Finding]:
    """Yield types that can't have the pool's EFA interfaces.

    The pool has one launch template for all its types, so their first cards must agree.
    """
    requested = pool.get("efa") if isinstance(pool, dict) else None
    if not isinstance(requested, int) or requested < 1:
        return
    offered = _offered(pool)
    for index, name in offered:
        path = (*offerings, index, "type")
        available = efa_interfaces(name)
        if available == 0:
            others = ", ".join(types_with_efa(family(name)))
            hint = f"; {others} have" if others else f", and no type of {family(name)} has"
            yield path, f"{name} has no EFA{hint}"
        elif available is not None and requested > available:
            yield path, f"{name} has {available} EFA interfaces, and the pool's efa is {requested}"
        first = offered[0][1]
        if (name in FIRST_CARD_WITHOUT_EFA) != (first in FIRST_CARD_WITHOUT_EFA):
            message = f"only one of {first} and {name} has EFA on its first network card"
            yield path, f"{message}: give them pools of their own"
