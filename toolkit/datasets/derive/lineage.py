"""Descriptions of a dataset and its lineage, for people."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from toolkit.datasets.derive.derive import tier_of
from toolkit.datasets.store.catalog import Catalog, Derivation, Tier, manifest_versions

_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Description:
    """A version, its names, and its place among the others."""

    version: str
    tier: Tier
    names: tuple[str, ...]
    files: int
    size: int
    made: tuple[Derivation, ...]  # its derivation, and its inputs' ones, nearest first
    used_by: tuple[Derivation, ...]  # derivations that use it directly


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a list."""

    name: str | None
    number: int | None
    version: str
    tier: Tier
    made_from: tuple[str, ...]  # the inputs' names, or the first characters of their versions


def listed(catalog: Catalog, *, unnamed: bool = False) -> list[Row]:
    """Return every name with its version, then unnamed versions if wanted."""
    derivations = catalog.derivations()
    named = [(one, one.version) for one in catalog.named() if one.version]
    names = {version: one.reference for one, version in named}
    inputs = {one.output: one.inputs for one in derivations}

    def row(version: str, name: str | None, number: int | None) -> Row:
        made_from = tuple(names.get(each, f"{each[:19]}…") for each in inputs.get(version, ()))
        return Row(name, number, version, tier_of(version, derivations), made_from)

    rows = [row(version, one.name, one.number) for one, version in named]
    if unnamed:
        others = sorted(version for version, _ in manifest_versions(catalog.store))
        rows += [row(version, None, None) for version in others if version not in names]
    return rows


def describe(catalog: Catalog, reference: str) -> Description:
    """Read everything about a version. Raises DatasetUnknown."""
    version = catalog.resolve(reference)
    manifest = catalog.manifest(version)
    derivations = catalog.derivations()
    return Description(
        version=version,
        tier=tier_of(version, derivations),
        names=tuple(one.reference for one in catalog.named() if one.version == version),
        files=len(manifest.files),
        size=manifest.size,
        made=tuple(_made(version, derivations)),
        used_by=tuple(one for one in derivations if version in one.inputs),
    )


def lines(found: Description) -> Iterator[str]:
    """Yield the description as text."""
    yield f"{found.version}  {found.tier}"
    yield f"names: {', '.join(found.names) or 'none: garbage, unless something kept needs it'}"
    yield f"files: {found.files}, {found.size:,} bytes"
    for one in found.made:
        yield f"{one.output[:19]}…  {one.tier}, made from"
        for version in one.inputs:
            yield f"  {version}"
        params = json.dumps(dict(one.params), sort_keys=True)
        yield f"  by code {one.code[:12]}…, parameters {params}"
    for one in found.used_by:
        yield f"used for {one.output}  {one.tier}"


def _made(version: str, derivations: list[Derivation]) -> Iterator[Derivation]:
    seen, todo = {version}, [version]
    while todo and len(seen) < _DEEPEST:
        output = todo.pop(0)
        for one in derivations:
            if one.output == output:
                yield one
                fresh = [each for each in one.inputs if each not in seen]
                seen.update(fresh)
                todo.extend(fresh)
