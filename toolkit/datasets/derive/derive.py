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

from toolkit.datasets.cache.cache import Held
from toolkit.datasets.dataset import take
from toolkit.datasets.errors import BuildFailed, DataError, DatasetUnknown
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.datasets.settings import Places, places
from toolkit.datasets.stop import leaving_when_asked
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog, Derivation, Tier, check_name
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.gc_markers import adding
from toolkit.datasets.store.open_store import open_store

Build = Callable[[Sequence[Path], Path, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Derived:
    """A derived dataset: its version, its derivation, and whether it existed already."""

    version: str
    derivation: Derivation
    reused: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """A build that could be made, and its earlier result if there is one."""

    key: str
    inputs: tuple[str, ...]
    code: str
    params: Mapping[str, Any]
    found: Derivation | None  # None if the key was never built

    def made(self, output: str, tier: Tier, at: float) -> Derivation:
        """Return the derivation that records `output` as the result."""
        return Derivation(self.key, output, self.inputs, self.code, self.params, tier, at)


def planned(
    catalog: Catalog, inputs: Sequence[str], code: Sequence[Path], params: Mapping[str, Any]
) -> Planned:
    """Look up the inputs and an earlier result; changes nothing.

    Raises DatasetUnknown, DataError.
    """
    versions = tuple(catalog.resolve(reference) for reference in inputs)
    for version in versions:
        if not catalog.has(version):
            raise DatasetUnknown(f"{catalog.store.url} has no {version}")
    hashed = code_hash(code)
    key = key_of(versions, hashed, params)
    return Planned(key, versions, hashed, dict(params), catalog.derivation(key))


def derived(
    inputs: Sequence[str],
    build: Build,
    *,
    params: Mapping[str, Any] | None = None,
    code: Sequence[Path] | None = None,
    tier: Tier | None = None,
    name: str | None = None,
    where: Places | None = None,
) -> Derived:
    """Return `build(input_folders, output_folder, params)`'s dataset, building it if necessary.

    `code` is the code that the result depends on: files and folders. The default is the
    file that defines `build`. Concurrent builders of one key build it once. With an S3
    store that is once on each node, and the first result counts. A failed build leaves
    nothing.

    If the job is asked to stop while it waits for another builder or for the inputs,
    the script exits and the job is requeued.
    """
    if name:
        check_name(name)
    where = where or places()
    catalog = Catalog(open_store(where.store_url()))
    wanted = planned(catalog, inputs, [_source_of(build)] if code is None else code, params or {})
    root = _lock_root(catalog, where)
    with leaving_when_asked() as stop, Lock(root / wanted.key, everybody=True) as lock:
        lock.exclusive(stop)
        found, reused = catalog.derivation(wanted.key), True
        if found is None:
            work = root / f"{wanted.key}.{os.getuid()}.work"
            held = [take(version, where, stop=stop) for version in wanted.inputs]
            output = _output(catalog, wanted, build, work, held)
            graded = tier or _grade(catalog, wanted.inputs)
            found, reused = wanted.made(output, graded, catalog.clock()), False
        _keep(catalog, found, name, new=not reused)
    return Derived(found.output, found, reused)


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


def tier_of(version: str, derivations: Sequence[Derivation]) -> Tier:
    """Return the tier of the latest derivation; bronze if not derived."""
    made = [one.tier for one in derivations if one.output == version]
    return made[-1] if made else "bronze"


def _output(
    catalog: Catalog, wanted: Planned, build: Build, work: Path, held: Sequence[Held]
) -> str:
    try:
        return _build(catalog, work, build, held, wanted.params)
    finally:
        for one in held:
            one.release()


def _build(
    catalog: Catalog, work: Path, build: Build, held: Sequence[Held], params: Mapping[str, Any]
) -> str:
    """Build in a folder of its own and add the result.

    The remains of a killed builder are deleted first.
    """
    shutil.rmtree(work, ignore_errors=True)
    output = work / uuid.uuid4().hex
    output.mkdir(parents=True)
    try:
        build([one.path for one in held], output, params)
        _refuse_empty(output)
        return add(catalog, output).version
    except DataError:
        raise
    except Exception as error:
        raise BuildFailed(f"the build failed: {type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _refuse_empty(output: Path) -> None:
    if not any(output.iterdir()):
        raise BuildFailed("the build wrote nothing", next_step="write into the output folder")


def _keep(catalog: Catalog, made: Derivation, name: str | None, *, new: bool) -> None:
    """Record the derivation, refresh its manifest's age, and name it if asked."""
    with adding(catalog):
        catalog.put_manifest(catalog.manifest(made.output))
        if new:
            catalog.put_derivation(made)
        if name:
            catalog.name(name, made.output)


def _grade(catalog: Catalog, inputs: Sequence[str]) -> Tier:
    derivations = catalog.derivations()
    raw = all(tier_of(version, derivations) == "bronze" for version in inputs)
    return "silver" if raw else "gold"


def _lock_root(catalog: Catalog, where: Places) -> Path:
    """Return the widest folder with locks that builders share."""
    if isinstance(catalog.store, FolderStore):
        root = catalog.store.root / "building"
    else:
        root = (where.shared or where.cache) / "building"
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
