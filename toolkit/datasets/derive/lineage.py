"""Descriptions of a dataset and its lineage, for people."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from toolkit.datasets.derive.derive import tier_of
from toolkit.datasets.store.catalog import Catalog, DatasetTier, Derivation, manifest_versions

_MAX_VERSIONS = 50


@dataclass(frozen=True, slots=True)
class Description:
    """A version, its names, and its place among the others."""

    version: str
    tier: DatasetTier
    names: tuple[str, ...]
    files: int
    size: int
    made: tuple[Derivation, ...]  # its derivation, and its inputs' ones, nearest first
    used_by: tuple[Derivation, ...]  # derivations that use it directly


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A line of a list."""

    name: str | None
    number: int | None
    version: str
    tier: DatasetTier
    made_from: tuple[str, ...]  # the inputs' names, or the first characters of their versions


def list_datasets(catalog: Catalog, *, include_unnamed: bool = False) -> list[DatasetRow]:
    """Return every name with its version, then unnamed versions if wanted."""
    derivations = catalog.derivations()
    named_versions = [(named, named.version) for named in catalog.named_versions() if named.version]
    names = {version: named.reference for named, version in named_versions}
    inputs = {derivation.output: derivation.inputs for derivation in derivations}

    def row(version: str, name: str | None, number: int | None) -> DatasetRow:
        made_from = tuple(names.get(item, f"{item[:19]}…") for item in inputs.get(version, ()))
        return DatasetRow(name, number, version, tier_of(version, derivations), made_from)

    rows = [row(version, named.name, named.number) for named, version in named_versions]
    if include_unnamed:
        versions = sorted(version for version, _ in manifest_versions(catalog.store))
        rows += [row(version, None, None) for version in versions if version not in names]
    return rows


def describe(catalog: Catalog, reference: str) -> Description:
    """Read everything about a version. Raises DatasetUnknown."""
    version = catalog.resolve(reference)
    manifest = catalog.manifest(version)
    derivations = catalog.derivations()
    return Description(
        version=version,
        tier=tier_of(version, derivations),
        names=tuple(
            named.reference for named in catalog.named_versions() if named.version == version
        ),
        files=len(manifest.files),
        size=manifest.size,
        made=tuple(_derivation_chain(version, derivations)),
        used_by=tuple(derivation for derivation in derivations if version in derivation.inputs),
    )


def description_lines(description: Description) -> Iterator[str]:
    """Yield the description as text."""
    yield f"{description.version}  {description.tier}"
    names = ", ".join(description.names)
    yield f"names: {names or 'none: garbage, unless a kept dataset was made from it'}"
    yield f"files: {description.files}, {description.size:,} bytes"
    for derivation in description.made:
        yield f"{derivation.output[:19]}…  {derivation.tier}, made from"
        for version in derivation.inputs:
            yield f"  {version}"
        params = json.dumps(dict(derivation.params), sort_keys=True)
        yield f"  by code {derivation.code[:12]}…, parameters {params}"
    for derivation in description.used_by:
        yield f"used for {derivation.output}  {derivation.tier}"


def _derivation_chain(version: str, derivations: list[Derivation]) -> Iterator[Derivation]:
    seen_versions, pending_versions = {version}, [version]
    while pending_versions and len(seen_versions) < _MAX_VERSIONS:
        output = pending_versions.pop(0)
        for derivation in derivations:
            if derivation.output == output:
                yield derivation
                new_inputs = [item for item in derivation.inputs if item not in seen_versions]
                seen_versions.update(new_inputs)
                pending_versions.extend(new_inputs)
