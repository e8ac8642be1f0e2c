"""A store's versions, names and derivations."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toolkit.datasets.errors import DatasetUnknown, NameRefused, StoreFailed
from toolkit.datasets.store.manifest import Manifest, hex_of, is_version, parse
from toolkit.datasets.store.port import WANTED, Store
from toolkit.training.io.durable_files import encode_line

DatasetTier = Literal["bronze", "silver", "gold"]

MANIFESTS, NAMES, DERIVATIONS = "manifests/", "names/", "derivations/"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_REFERENCE = re.compile(r"([a-z0-9][a-z0-9._-]{0,99})(?:@([1-9][0-9]{0,7}))?")
_NAME_KEY = re.compile(rf"{NAMES}([^/]+)/([0-9]{{8}})\.json")
_DERIVATION_KEY = re.compile(rf"{DERIVATIONS}([0-9a-f]{{64}})\.json")


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """A version that a name stands for: `name@number` for ever, `name` while it is the newest."""

    name: str
    number: int
    version: str | None  # None: forgotten, and its number is not used again
    at: float  # epoch seconds

    @property
    def reference(self) -> str:
        return f"{self.name}@{self.number}"


@dataclass(frozen=True, slots=True)
class Derivation:
    """The record of how a version was made."""

    key: str  # hash of inputs, code and parameters
    output: str
    inputs: tuple[str, ...]
    code: str
    params: Mapping[str, Any]
    tier: DatasetTier
    at: float  # epoch seconds


class Catalog:
    """A reader and writer of a store's small records."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self.store, self.clock = store, clock

    # -- versions

    def manifest(self, version: str) -> Manifest:
        """Read a version's manifest and check it.

        Raises DatasetUnknown, ManifestInvalid.
        """
        encoded = self.store.read(manifest_key(version))
        if encoded is None:
            raise DatasetUnknown(
                f"{self.store.url} has no {version}",
                next_step="toolkit data list shows what it has",
            )
        return parse(encoded, version)

    def has(self, version: str) -> bool:
        return self.store.read(manifest_key(version)) is not None

    def put_manifest(self, manifest: Manifest) -> None:
        """Write the manifest; a repeated write makes it young for garbage collection."""
        self.store.write_same(manifest_key(manifest.version), manifest.encoded)

    # -- names

    def resolve(self, reference: str) -> str:
        """Return the version of `sha256:…`, `name` or `name@number`.

        Raises DatasetUnknown.
        """
        if is_version(reference):
            return reference
        return self.matching_versions(reference)[-1].version or ""

    def named_versions(self, name: str | None = None) -> list[NamedVersion]:
        """Return all versions of a name, or of every name.

        Ordered by name and number; forgotten ones are included.
        """
        found = []
        for item in self.store.list(f"{NAMES}{check_name(name)}/" if name else NAMES):
            if match := _NAME_KEY.fullmatch(item.key):
                record = self._read_record(item.key)
                version, at = record.get("version"), float(record.get("at", 0))
                found.append(NamedVersion(match[1], int(match[2]), version, at))
        return sorted(found, key=lambda named: (named.name, named.number))

    def set_name(self, name: str, version: str) -> NamedVersion:
        """Let the name stand for a version from now on.

        Returns the new entry, or the newest one if it has this version already.
        """
        check_name(name)
        while True:
            earlier = self.named_versions(name)
            if earlier and earlier[-1].version == version:
                return earlier[-1]
            number = earlier[-1].number + 1 if earlier else 1
            named = NamedVersion(name, number, version, self.clock())
            record = encode_line({"version": version, "at": named.at})
            if self.store.write_new(_name_key(name, number), record):
                return named

    def forget(self, reference: str) -> list[NamedVersion]:
        """Forget `name@number`, or all numbers of `name`; return them.

        Garbage collection no longer keeps their versions.
        """
        versions = self.matching_versions(reference)
        for named in versions:
            record = encode_line({"version": None, "at": self.clock()})
            self.store.write(_name_key(named.name, named.number), record)
        return versions

    def matching_versions(self, reference: str) -> list[NamedVersion]:
        """Return the entries of `name@number`, or of `name`, but for forgotten ones."""
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise NameRefused(
                f"{reference!a} is not a dataset's name", next_step="NAME or NAME@NUMBER"
            )
        number = int(match[2]) if match[2] else None
        versions = [
            named
            for named in self.named_versions(match[1])
            if named.version and number in (None, named.number)
        ]
        if not versions:
            raise DatasetUnknown(
                f"{self.store.url} has no {reference}",
                next_step="toolkit data list shows what it has",
            )
        return versions

    # -- lineage

    def derivation(self, key: str) -> Derivation | None:
        """Return the derivation of a key, None if its output was deleted."""
        content = self.store.read(f"{DERIVATIONS}{key}.json")
        if content is None:
            return None
        derivation = _parse_derivation(key, content)
        return derivation if self.has(derivation.output) else None

    def derivations(self) -> list[Derivation]:
        """Return every recorded derivation, the oldest first."""
        keys = [_DERIVATION_KEY.fullmatch(item.key) for item in self.store.list(DERIVATIONS)]
        derivations = [
            _parse_derivation(match[1], content)
            for match in keys
            if match and (content := self.store.read(match[0])) is not None
        ]
        return sorted(derivations, key=lambda derivation: (derivation.at, derivation.key))

    def put_derivation(self, derivation: Derivation) -> Derivation:
        """Record a derivation, and return the one that counts.

        The first record of a key stays, unless its output was deleted.
        """
        record = {name: value for name, value in asdict(derivation).items() if name != "key"}
        key, content = f"{DERIVATIONS}{derivation.key}.json", encode_line(record)
        if self.store.write_new(key, content):
            return derivation
        if (first := self.derivation(derivation.key)) is not None:
            return first
        self.store.write(key, content)
        return derivation

    def _read_record(self, key: str) -> dict[str, Any]:
        content = self.store.read(key)
        try:
            value = json.loads(content or b"{}")
        except ValueError as error:
            raise StoreFailed(f"{self.store.url}: {key} can't be read") from error
        return value if isinstance(value, dict) else {}


def manifest_key(version: str) -> str:
    return f"{MANIFESTS}{hex_of(version)}.json"


def manifest_versions(store: Store) -> Iterator[tuple[str, float]]:
    """Yield every version in the store with its manifest's last write."""
    wanted_at = {item.key.removeprefix(WANTED): item.modified for item in store.list(WANTED)}
    for item in store.list(MANIFESTS):
        version = "sha256:" + item.key.removeprefix(MANIFESTS).removesuffix(".json")
        if is_version(version):
            yield version, max(item.modified, wanted_at.get(item.key, 0.0))


def ancestors(versions: Sequence[str], derivations: Sequence[Derivation]) -> set[str]:
    """Return the versions, their inputs, their inputs' inputs, and so on."""
    inputs: dict[str, set[str]] = {}
    for derivation in derivations:
        inputs.setdefault(derivation.output, set()).update(derivation.inputs)
    all_versions: set[str] = set()
    pending_versions = list(versions)
    while pending_versions:
        version = pending_versions.pop()
        if version not in all_versions:
            all_versions.add(version)
            pending_versions.extend(inputs.get(version, ()))
    return all_versions


def check_name(name: str) -> str:
    """Return the name if it is valid. Raises NameRefused."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise NameRefused(
            f"{name!a} can't be the name of a dataset",
            next_step="use small letters, digits, '.', '_' and '-'",
        )
    return name


def _name_key(name: str, number: int) -> str:
    return f"{NAMES}{name}/{number:08d}.json"


def _parse_derivation(key: str, content: bytes) -> Derivation:
    try:
        record = json.loads(content)
        return Derivation(
            key=key,
            output=str(record["output"]),
            inputs=tuple(str(version) for version in record["inputs"]),
            code=str(record["code"]),
            params=dict(record["params"]),
            tier=record["tier"],
            at=float(record["at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreFailed(f"the derivation {key} can't be read: {error}") from error
