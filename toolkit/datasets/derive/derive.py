"""Bronze, silver, gold: builds a dataset from others once and keeps it under its key.

The key is the hash of the input versions, the code and the parameters. While none of
them changes, the result is there already; when one does, a new result is made beside
the old one. The record of a build is the lineage: `toolkit data show` prints it, and
garbage collection follows it.
"""

import hashlib
import inspect
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.datasets.cache.cache import HeldDataset
from toolkit.datasets.dataset import hold_dataset
from toolkit.datasets.errors import BuildFailed, DataError, DatasetUnknown
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.datasets.settings import DatasetSettings, read_settings
from toolkit.datasets.stop import exit_on_stop_request
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog, DatasetTier, Derivation, check_name
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.gc_markers import adding
from toolkit.datasets.store.open_store import open_store

Build = Callable[[Sequence[Path], Path, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class DerivedDataset:
    """A derived dataset: its version, its derivation, and whether it existed already."""

    version: str
    derivation: Derivation
    reused: bool


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """A build that could be made, and its earlier result if there is one."""

    key: str
    inputs: tuple[str, ...]
    code: str
    params: Mapping[str, Any]
    found: Derivation | None  # None if the key was never built

    def to_derivation(self, output: str, tier: DatasetTier, at: float) -> Derivation:
        """Return the derivation that records `output` as the result."""
        return Derivation(self.key, output, self.inputs, self.code, self.params, tier, at)


def plan_build(
    catalog: Catalog, inputs: Sequence[str], code: Sequence[Path], params: Mapping[str, Any]
) -> BuildPlan:
    """Look up the inputs and an earlier result; changes nothing.

    Raises DatasetUnknown, DataError.
    """
    versions = tuple(catalog.resolve(reference) for reference in inputs)
    for version in versions:
        if not catalog.has(version):
            raise DatasetUnknown(f"{catalog.store.url} has no {version}")
    code_digest = code_hash(code)
    key = key_of(versions, code_digest, params)
    return BuildPlan(key, versions, code_digest, dict(params), catalog.derivation(key))


def derived(
    inputs: Sequence[str],
    build: Build,
    *,
    params: Mapping[str, Any] | None = None,
    code: Sequence[Path] | None = None,
    tier: DatasetTier | None = None,
    name: str | None = None,
    where: DatasetSettings | None = None,
) -> DerivedDataset:
    """Return `build(input_folders, output_folder, params)`'s dataset, building it if necessary.

    `code` is the code that the result depends on: files and folders. The default is the
    file that defines `build`. Concurrent builders of one key build it once. With an S3
    store that is once on each node: the first result counts, and all of them return it. A
    failed build leaves nothing.

    If a stop is requested while it waits for another builder or for the inputs,
    the script exits and the job is requeued.
    """
    if name:
        check_name(name)
    where = where or read_settings()
    catalog = Catalog(open_store(where.store_url()))
    code = [_source_of(build)] if code is None else code
    plan = plan_build(catalog, inputs, code, params or {})
    root = _lock_root(catalog, where)
    with exit_on_stop_request() as stop, Lock(root / plan.key, all_users=True) as lock:
        lock.acquire_exclusive(stop)
        existing = result = catalog.derivation(plan.key)
        if result is None:
            work = root / f"{plan.key}.{os.getuid()}.work"
            held = [hold_dataset(version, where, should_stop=stop) for version in plan.inputs]
            version = _build_and_release(catalog, plan, build, work, held)
            tier = tier or _default_tier(catalog, plan.inputs)
            result = plan.to_derivation(version, tier, catalog.clock())
        derivation = _record(catalog, result, name, is_new=existing is None)
    is_reused = existing is not None or derivation != result
    return DerivedDataset(derivation.output, derivation, reused=is_reused)


def key_of(inputs: Sequence[str], code: str, params: Mapping[str, Any]) -> str:
    """Return the key of a derivation. Raises DataError.

    The order of the inputs matters.
    """
    try:
        text = json.dumps(
            {"code": code, "inputs": list(inputs), "params": params},
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
        )
    except (TypeError, ValueError) as error:
        raise DataError(f"parameters must be plain JSON: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


def code_hash(code: Sequence[Path]) -> str:
    """Return the hash of the files, by name and content. Raises DataError."""
    digest = hashlib.sha256()
    for path in code:
        files = [path] if path.is_file() else sorted(_code_files(path))
        if not files:
            raise DataError(f"no code in {path}", next_step="name a file, or a folder of files")
        for file in files:
            name = file.name if file == path else file.relative_to(path).as_posix()
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
            digest.update(content)
    return digest.hexdigest()


def tier_of(version: str, derivations: Sequence[Derivation]) -> DatasetTier:
    """Return the tier of the latest derivation; bronze if not derived."""
    tiers = [item.tier for item in derivations if item.output == version]
    return tiers[-1] if tiers else "bronze"


def _build_and_release(
    catalog: Catalog, plan: BuildPlan, build: Build, work: Path, inputs: Sequence[HeldDataset]
) -> str:
    try:
        return _build(catalog, plan, build, work, [item.path for item in inputs])
    finally:
        for item in inputs:
            item.release()


def _build(
    catalog: Catalog, plan: BuildPlan, build: Build, work: Path, inputs: Sequence[Path]
) -> str:
    """Build in a folder of its own and add the result.

    The remains of a killed builder are deleted first.
    """
    shutil.rmtree(work, ignore_errors=True)
    output_folder = work / uuid.uuid4().hex
    output_folder.mkdir(parents=True)
    try:
        build(inputs, output_folder, plan.params)
        _refuse_empty(output_folder)
        return add(catalog, output_folder).version
    except DataError:
        raise
    except Exception as error:
        raise BuildFailed(f"the build failed: {type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _refuse_empty(output_folder: Path) -> None:
    if not any(output_folder.iterdir()):
        raise BuildFailed("the build wrote nothing", next_step="write into the output folder")


def _record(
    catalog: Catalog, derivation: Derivation, name: str | None, *, is_new: bool
) -> Derivation:
    """Record a new derivation, refresh its manifest's age, and name it.

    Returns the derivation that counts: another node may have recorded one first.
    """
    with adding(catalog):
        if is_new:
            derivation = catalog.put_derivation(derivation)
        catalog.put_manifest(catalog.manifest(derivation.output))
        if name:
            catalog.set_name(name, derivation.output)
    return derivation


def _default_tier(catalog: Catalog, inputs: Sequence[str]) -> DatasetTier:
    derivations = catalog.derivations()
    all_bronze = all(tier_of(version, derivations) == "bronze" for version in inputs)
    return "silver" if all_bronze else "gold"


def _lock_root(catalog: Catalog, settings: DatasetSettings) -> Path:
    """Return the widest folder with locks that builders share."""
    if isinstance(catalog.store, FolderStore):
        root = catalog.store.root / "building"
    else:
        root = (settings.shared_cache_folder or settings.cache_folder) / "building"
    Disk().make_folder(root, within=root.parent)
    return root


def _code_files(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".git" not in path.parts
    ]


def _source_of(build: Build) -> Path:
    try:
        return Path(inspect.getfile(build))
    except TypeError as error:
        raise DataError(
            "the code of the build can't be found", next_step="name its files: code=[…]"
        ) from error
