"""A backup of the head: dumped, hashed, and written to the bucket of backups.

The manifest is written last. A backup that fails leaves objects without one, which the bucket's
lifecycle rule removes. The head's role can write backups, and neither read nor delete one.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from slurmplugins import __version__
from slurmplugins.config import paths
from slurmplugins.errors import BackupError
from slurmplugins.head import saved_folders
from slurmplugins.model import backup
from slurmplugins.model.backup import BackupObject, Manifest, Versions
from slurmplugins.system import streams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.cloud.files import FileStore
    from slurmplugins.cloud.port import ObjectStore
    from slurmplugins.head.databases import Databases
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner

SLURM_STATE: Final = Path("/srv/head/slurmctld")
TRACKING: Final = Path("/opt/mlflow/lib")
"""The environment of MLflow's and Optuna's servers."""
WORK: Final = Path("/var/tmp")  # noqa: S108 - a folder of root's own is made there
ASK_SECONDS: Final = 60.0
_NEXT_JOB: Final = re.compile(r"^NEXT_JOB_ID\s*=\s*(\d+)\s*$", re.ASCII | re.MULTILINE)
_VERSION: Final = re.compile(r"\d+\.\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HeadFolders:
    """The folders that a backup saves, and where it works."""

    slurm_state: Path = SLURM_STATE
    toolkit_state: Path = Path("/var/lib/slurm-toolkit")
    budgets: Path = Path("/srv/head/budgets")
    governor: Path = Path("/srv/head/governor")
    restore: Path = paths.RESTORE
    tracking: Path = TRACKING
    work: Path = WORK


@dataclass(frozen=True, slots=True)
class Head:
    """The head's programs, as a backup and a restore ask them."""

    cluster: str
    slurm_bin: str
    runner: Runner
    databases: Databases
    folders: HeadFolders

    def versions(self) -> Versions:
        """Return the versions of the programs with data. Raises BackupError."""
        packages = tracking_packages(self.folders.tracking)
        return Versions(
            slurm=_first_version(self.ask("scontrol", "--version")),
            mariadb=self.databases.version(),
            toolkit=__version__,
            mlflow=packages.get("mlflow", ""),
            optuna=packages.get("optuna", ""),
        )

    def next_job_id(self) -> int:
        """Return the id that slurmctld gives to the next job. Raises BackupError."""
        match = _NEXT_JOB.search(self.ask("scontrol", "show", "config"))
        if match is None:
            raise BackupError("scontrol show config has no NEXT_JOB_ID")
        return int(match[1])

    def ask(self, program: str, *words: str) -> str:
        """Return what one of Slurm's programs prints. Raises BackupError."""
        argv = [f"{self.slurm_bin}/{program}", *words]
        result = self.runner.run(argv, timeout=ASK_SECONDS)
        if result.returncode:
            text = result.stderr.strip() or result.stdout.strip()
            raise BackupError(f"{' '.join([program, *words])} failed: {text[-300:]}")
        return result.stdout


def tracking_packages(environment: Path) -> Mapping[str, str]:
    """Return the packages of a Python environment, with their versions."""
    folders = [str(path) for path in environment.glob("python3*/site-packages")]
    found = importlib.metadata.distributions(path=folders) if folders else ()
    return {item.metadata["Name"].lower(): item.version for item in found}


def take(head: Head, store: FileStore, clock: Clock, *, before_restore: bool = False) -> Manifest:
    """Write a backup; return its manifest. Raises BackupError, CloudError or OSError."""
    now = clock.now()
    versions = head.versions()
    # Read first: a job that begins meanwhile is then in the accounting, or in the gap.
    next_job_id = head.next_job_id()
    backup_id = backup.new_id(now)
    with tempfile.TemporaryDirectory(prefix="slurm-backup-", dir=head.folders.work) as name:
        folder = Path(name)
        objects = tuple(_write_all(head, versions, folder))
        manifest = Manifest(
            backup_id, head.cluster, now, next_job_id, versions, objects, before_restore
        )
        text = folder / backup.MANIFEST
        text.write_text(json.dumps(manifest.to_json(), indent=2) + "\n", encoding="utf-8")
        for item in objects:
            store.upload(folder / item.name, _key(backup_id, item.name))
        store.upload(text, _key(backup_id, backup.MANIFEST))
    return manifest


def _key(backup_id: str, name: str) -> str:
    return f"{backup.PREFIX}/{backup_id}/{name}"


def _write_all(head: Head, versions: Versions, folder: Path) -> Iterable[BackupObject]:
    """Yield each object of the backup, written to the folder."""
    has_program = {
        backup.ACCOUNTING: True,
        backup.MLFLOW: versions.mlflow,
        backup.OPTUNA: versions.optuna,
    }
    for database in backup.DATABASES:
        if has_program[database]:
            path = folder / backup.dump_name(database)
            head.databases.dump(database, path)
            yield _object(path)
    for name, source in (
        (backup.SLURM_STATE, head.folders.slurm_state),
        (backup.TOOLKIT_STATE, head.folders.toolkit_state),
        (backup.BUDGETS, head.folders.budgets),
        (backup.GOVERNOR, head.folders.governor),
    ):
        saved_folders.save(source, folder / name)
        yield _object(folder / name)


def _object(path: Path) -> BackupObject:
    return BackupObject(path.name, path.stat().st_size, streams.sha256(path))


def _first_version(text: str) -> str:
    match = _VERSION.search(text)
    return match[0] if match else text.strip()[:40]


@dataclass(frozen=True, slots=True)
class BackupStatus:
    """The object by which `toolkit status` learns how the last backups went."""

    store: ObjectStore

    def succeeded(self, manifest: Manifest, seconds: float) -> None:
        """Record a backup. Raises CloudError."""
        size = sum(item.bytes for item in manifest.objects)
        good = {"id": manifest.id, "at": manifest.at, "bytes": size, "seconds": round(seconds, 1)}
        self.store.put(backup.STATUS, {"good": good, "error": "", "error_at": 0})

    def failed(self, message: str, now: float) -> None:
        """Record a failure beside the last good backup. Raises CloudError."""
        last: dict[str, Any] = self.store.get(backup.STATUS) or {}
        value = {"good": last.get("good"), "error": message[:500], "error_at": now}
        self.store.put(backup.STATUS, value)
