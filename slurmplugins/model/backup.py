"""A backup of the head: its objects, its manifest, and where it may be restored. Pure.

The head writes the manifest last, so a backup without one is unfinished and counts for nothing.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BackupError
from slurmplugins.model import json_input

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
PREFIX: Final = "backups"
"""The prefix of all backups in their bucket. The head's role may write here and nowhere else."""
RESTORE_PREFIX: Final = "restore"
"""The prefix in the cluster's bucket from which the head reads a backup to restore."""
STATUS: Final = "status/backup.json"
"""The object in the cluster's bucket that tells how the last backups went."""
MANIFEST: Final = "manifest.json"
ACCOUNTING: Final = "slurm_acct_db"
MLFLOW: Final = "mlflow"
OPTUNA: Final = "optuna"
DATABASES: Final = (ACCOUNTING, MLFLOW, OPTUNA)
SLURM_STATE: Final = "slurmctld.tar.gz"
TOOLKIT_STATE: Final = "slurm-toolkit.tar.gz"
BUDGETS: Final = "budgets.tar.gz"
GOVERNOR: Final = "governor.tar.gz"
JOB_ID_GAP: Final = 10_000
"""A restored cluster's job ids begin at the next multiple of this, a whole gap later.

Jobs that began between the backup and the loss have used ids that the backup does not know.
"""

_ID: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ", re.ASCII)
_ID_FORMAT: Final = "%Y-%m-%dT%H-%M-%SZ"
_NAME: Final = re.compile(r"[a-z][a-z_-]{0,40}(\.sql|\.tar)\.gz", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_SERIES: Final = re.compile(r"(\d\d)\.(05|11)(\..*)?", re.ASCII)
_UPGRADES_THREE_RELEASES: Final = "24.11"
"""The first series whose slurmdbd takes a database three releases old; those before take two.

https://slurm.schedmd.com/upgrades.html
"""


@dataclass(frozen=True, slots=True)
class BackupObject:
    """An object of a backup, with its size and hash."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of the programs whose data is saved; empty where one is not installed."""

    slurm: str
    mariadb: str
    toolkit: str
    mlflow: str = ""
    optuna: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a backup."""

    id: str
    cluster: str
    at: float
    next_job_id: int
    versions: Versions
    objects: tuple[BackupObject, ...]
    before_restore: bool = False
    """It was taken to keep what a restore then replaced. `latest` passes over it."""

    @property
    def databases(self) -> tuple[str, ...]:
        """Return the databases that the backup has."""
        names = {item.name for item in self.objects}
        return tuple(name for name in DATABASES if dump_name(name) in names)

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}


@dataclass(frozen=True, slots=True)
class BegunRestore:
    """A restore that began on a head, and is not complete."""

    first_job_id: int
    backup: str = ""
    """Empty: it was begun by an earlier version, which noted the first job id alone."""
    cluster: str = ""
    """The cluster that the backup is of."""
    manifest_sha256: str = ""

    def completes_with(self, manifest: Manifest, sha256: str) -> bool:
        """Return whether this backup may be the one that was begun."""
        return not self.backup or (self.backup, self.manifest_sha256) == (manifest.id, sha256)


def begun_restore(value: Mapping[str, Any]) -> BegunRestore:
    """Read the note of a begun restore, also of an earlier version.

    Raises ValueError, TypeError, KeyError or AttributeError.
    """
    return BegunRestore(
        first_job_id=int(value["first_job_id"]),
        backup=str(value.get("backup", "")),
        cluster=str(value.get("cluster", "")),
        manifest_sha256=str(value.get("manifest_sha256", "")),
    )


def new_id(now: float) -> str:
    """Return the id of a new backup; later ids sort later."""
    return datetime.fromtimestamp(now, UTC).strftime(_ID_FORMAT)


def is_id(text: str) -> bool:
    """Return whether the text is an id of a backup."""
    try:
        return bool(_ID.fullmatch(text) and time_of(text))
    except ValueError:
        return False


def time_of(backup_id: str) -> float:
    """Return the time that an id states."""
    return datetime.strptime(backup_id, _ID_FORMAT).replace(tzinfo=UTC).timestamp()


def dump_name(database: str) -> str:
    """Return the object of a database."""
    return f"{database}.sql.gz"


def parse(text: bytes | str) -> Manifest:
    """Read a manifest.

    Raises BackupError for anything but a manifest of this version.
    """
    try:
        value = json_input.loads(text if isinstance(text, str) else text.decode())
        return _manifest(value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BackupError(f"the manifest can't be read: {error}") from error


def _manifest(value: Any) -> Manifest:
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']!r}, expected {VERSION}")
    versions = {name: str(text) for name, text in value["versions"].items()}
    manifest = Manifest(
        id=str(value["id"]),
        cluster=str(value["cluster"]),
        at=float(value["at"]),
        next_job_id=int(value["next_job_id"]),
        versions=Versions(**versions),
        objects=tuple(_object(item) for item in value["objects"]),
        before_restore=value.get("before_restore") is True,
    )
    if not is_id(manifest.id):
        raise ValueError(f"no id of a backup: {manifest.id[:80]!r}")
    if ACCOUNTING not in manifest.databases:
        raise ValueError("it has no accounting database")
    return manifest


def _object(item: Mapping[str, Any]) -> BackupObject:
    name, sha256 = str(item["name"]), str(item["sha256"])
    if not _NAME.fullmatch(name):
        raise ValueError(f"no object of a backup: {name[:80]!r}")
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"{name}: no SHA-256: {sha256[:80]!r}")
    return BackupObject(name, int(item["bytes"]), sha256)


def first_job_id(manifest: Manifest, next_job_id: int) -> int:
    """Return the restored cluster's first job id, beyond all used ones."""
    used = max(manifest.next_job_id, next_job_id)
    return (used // JOB_ID_GAP + 2) * JOB_ID_GAP


def restorable(manifest: Manifest, versions: Versions) -> tuple[str, ...]:
    """Return the databases whose program the cluster has too."""
    has_program = {ACCOUNTING: True, MLFLOW: versions.mlflow, OPTUNA: versions.optuna}
    return tuple(name for name in manifest.databases if has_program[name])


def version_problems(manifest: Manifest, versions: Versions) -> tuple[str, ...]:
    """Return why a cluster with these versions can't take the backup."""
    saved = manifest.versions
    problems = [_slurm_problem(saved.slurm, versions.slurm)]
    if _release(saved.mariadb) > _release(versions.mariadb):
        problems.append(
            f"MariaDB here is {versions.mariadb}, older than the backup's {saved.mariadb}"
        )
    databases = restorable(manifest, versions)
    # Each migrates its own tables by a command, which the toolkit does not run.
    for database, label in ((MLFLOW, "MLflow"), (OPTUNA, "Optuna")):
        here, there = getattr(versions, database), getattr(saved, database)
        if database in databases and here != there:
            problems.append(f"{label} here is {here}, and the backup's is {there}")
    return tuple(filter(None, problems))


def _slurm_problem(saved: str, here: str) -> str:
    """Return why this slurmdbd can't take the other's database, or nothing."""
    try:
        old, new = _series(saved), _series(here)
    except ValueError as error:
        return str(error)
    reach = 3 if new >= _series(_UPGRADES_THREE_RELEASES) else 2
    if old > new:
        return f"Slurm here is {here}, older than the backup's {saved}"
    if new - old > reach:
        return (
            f"Slurm here is {here}, and the backup's is {saved}:"
            f" slurmdbd takes data of at most {reach} releases before it"
        )
    return ""


def _series(version: str) -> int:
    """Return the place of a version's series among all releases."""
    match = _SERIES.fullmatch(version)
    if match is None:
        raise ValueError(f"Slurm {version!r} is no release that the toolkit knows")
    return 2 * int(match[1]) + (match[2] == "11")


def _release(version: str) -> tuple[int, int]:
    match = _RELEASE.match(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
