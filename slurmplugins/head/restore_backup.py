"""A backup, checked and brought into this head: databases, usage, job ids, what was spent.

Every hash is checked before anything changes. A restore that was interrupted has stopped the
daemons; running it again completes it. docs/adr/0030 says what of Slurm's state is restored.
"""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BackupError, CloudError, StateError
from slurmplugins.head import saved_folders
from slurmplugins.head.restore_budgets import restore_budgets, spending_words
from slurmplugins.head.restore_governor import restore_governor
from slurmplugins.model import backup, json_input
from slurmplugins.slurm import slurmdbd
from slurmplugins.system import files, streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.cloud.files import FileStore
    from slurmplugins.head.take_backup import Head
    from slurmplugins.model.backup import BegunRestore, Manifest
    from slurmplugins.system.clock import Clock

SYSTEMCTL: Final = "/usr/bin/systemctl"
SYSTEMCTL_SECONDS: Final = 300.0
SLURM: Final = ("slurmctld.service", "slurmdbd.service")
"""In the order in which they stop. They start in the other."""
TRACKING: Final = {backup.MLFLOW: "mlflow.service", backup.OPTUNA: "optuna.service"}
USAGE: Final = ("assoc_usage", "qos_usage")
"""Fair-share usage, by the ids of the accounting database."""
OF_OLD_DATABASE: Final = ("clustername", "assoc_mgr_state", "dbd.messages", *USAGE)
"""Slurm's state that belongs to the database that was there before.

`clustername` has the cluster's id in that database, and slurmctld refuses another one.
"""
MARKER: Final = "restore.json"
"""In the restore's folder while a restore is at work."""
START_SECONDS: Final = 3600.0
"""A newer slurmdbd converts the tables at its start."""
POLL_SECONDS: Final = 1.0
_FIRST_JOB: Final = re.compile(r"^\s*FirstJobId\s*=.*\n?", re.ASCII | re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: problems, or what a restore overwrites."""

    problems: tuple[str, ...]
    """Why the backup can't be restored here; empty if it can."""
    overwrites: tuple[str, ...]
    """What is lost, such as `12 jobs`."""
    restores: tuple[str, ...]
    """The databases that are restored."""
    first_job_id: int
    resumed: bool = False
    """An earlier restore was interrupted, which has stopped the daemons."""


def begun_on(head: Head) -> BegunRestore | None:
    """Return the head's restore that is not complete, if any. Raises BackupError."""
    for marker in _markers(head):
        try:
            return backup.begun_restore(json_input.loads(marker.read_bytes()))
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BackupError(f"{marker} can't be read: {error}") from error
    return None


def _markers(head: Head) -> tuple[Path, Path]:
    """Return where the note is, and where an earlier version wrote it."""
    return head.folders.restore / MARKER, head.folders.toolkit_state / MARKER


@dataclass(frozen=True, slots=True)
class Restore:
    """The restore of a backup in the cluster's bucket to this head."""

    head: Head
    store: FileStore
    prefix: str
    manifest_sha256: str
    clock: Clock
    slurm_conf: Path = paths.SLURM_CONF
    instead: bool = False
    """Restore this backup in the place of another, whose restore is not complete."""

    def check(self) -> Checked:
        """Read and check the backup; change nothing.

        Raises CloudError, BackupError or OSError.
        """
        with self._fetched() as (manifest, _):
            return self._checked(manifest)

    def run(self) -> Checked:
        """Check the backup, then restore it. May be repeated.

        Raises CloudError, BackupError or OSError; the message says whether anything was changed.
        """
        with self._fetched() as (manifest, folder):
            checked = self._checked(manifest)
            if checked.problems:
                raise BackupError(f"{'; '.join(checked.problems)}: nothing was changed")
            self._begin(manifest, checked)
            try:
                for unit in (*SLURM, *TRACKING.values()):
                    self._forbid(unit)
                self._stop(checked)
                self._replace(manifest, folder, checked)
                self._start(checked)
            except (BackupError, StateError, OSError, EOFError, tarfile.TarError) as error:
                raise BackupError(
                    f"the restore stopped half way, and Slurm's daemons are stopped: {error};"
                    " run it again"
                ) from error
            for unit in TRACKING.values():
                self._allow(unit)
            for marker in _markers(self.head):
                marker.unlink(missing_ok=True)
            self._start_tracking(checked)
            return checked

    @contextmanager
    def _fetched(self) -> Iterator[tuple[Manifest, Path]]:
        """Yield the manifest, and a folder with the checked objects."""
        with tempfile.TemporaryDirectory(
            prefix="slurm-restore-", dir=self.head.folders.work
        ) as name:
            folder = Path(name)
            manifest_file = self._download(folder, backup.MANIFEST, self.manifest_sha256)
            manifest = backup.parse(manifest_file.read_bytes())
            for item in manifest.objects:
                self._download(folder, item.name, item.sha256)
            # Loaded as the databases' own users, through this process.
            yield manifest, folder

    def _download(self, folder: Path, name: str, sha256: str) -> Path:
        path = folder / name
        try:
            self.store.download(f"{self.prefix}/{name}", path)
        except CloudError as error:
            raise BackupError(
                f"{name} can't be read: {error.message}; nothing was changed"
            ) from error
        if streams.sha256(path) != sha256:
            raise BackupError(
                f"{name} is not what was saved: its SHA-256 differs; nothing was changed"
            )
        return path

    def _checked(self, manifest: Manifest) -> Checked:
        versions = self.head.versions()
        databases = backup.restorable(manifest, versions)
        problems = list(backup.version_problems(manifest, versions))
        begun = begun_on(self.head)
        if begun is None:
            first_job_id = backup.first_job_id(manifest, self.head.next_job_id())
            problems += self._jobs()
        else:
            with suppress(BackupError):  # slurmctld is stopped: then no job can run
                problems += self._jobs()
            first_job_id = max(begun.first_job_id, backup.first_job_id(manifest, 0))
            problems += self._other_backup(begun, manifest)
        return Checked(
            problems=tuple(problems),
            overwrites=(
                *(self.head.databases.count(name) for name in databases),
                *spending_words(self.head.folders.budgets),
            ),
            restores=databases,
            first_job_id=first_job_id,
            resumed=begun is not None,
        )

    def _other_backup(self, begun: BegunRestore, manifest: Manifest) -> list[str]:
        """Return the problem of a restore that was begun with another backup."""
        if self.instead or begun.completes_with(manifest, self.manifest_sha256):
            return []
        return [f"the restore of backup {begun.backup} of cluster {begun.cluster} is not complete"]

    def _jobs(self) -> list[str]:
        jobs = len(self.head.ask("squeue", "--noheader", "--format=%A").split())
        noun = "job is" if jobs == 1 else "jobs are"
        return [f"{jobs} {noun} in the queue"] if jobs else []

    def _begin(self, manifest: Manifest, checked: Checked) -> None:
        """Note the backup and the first job id.

        The next restore completes this one: slurmctld can't be asked again before the end, and the
        newest backup may be another one by then.
        """
        note = backup.BegunRestore(
            checked.first_job_id, manifest.id, manifest.cluster, self.manifest_sha256
        )
        marker, _ = _markers(self.head)
        marker.parent.mkdir(mode=0o755, exist_ok=True)
        files.write_atomically(marker, json.dumps(asdict(note)).encode(), mode=0o600)

    def _forbid(self, unit: str) -> None:
        """Let nobody start the daemon on data that is half replaced.

        A boot starts the daemons, and so does the playbook. Their units look for this file.
        """
        files.write_atomically(self._fence(unit), b"", mode=0o600)

    def _allow(self, unit: str) -> None:
        self._fence(unit).unlink(missing_ok=True)

    def _fence(self, unit: str) -> Path:
        return self.head.folders.restore / unit.removesuffix(".service")

    def _stop(self, checked: Checked) -> None:
        tracking = [TRACKING[name] for name in checked.restores if name in TRACKING]
        for unit in (*tracking, *SLURM):
            self._systemctl("stop", unit)

    def _replace(self, manifest: Manifest, folder: Path, checked: Checked) -> None:
        state = self.head.folders.slurm_state
        for database in checked.restores:
            self.head.databases.replace(database, folder / backup.dump_name(database))
        for name in OF_OLD_DATABASE:
            (state / name).unlink(missing_ok=True)
            (state / f"{name}.old").unlink(missing_ok=True)
        # The ids of associations are those of a cluster of this name alone.
        is_same = manifest.cluster == self.head.cluster
        if is_same and (folder / backup.SLURM_STATE).exists():
            saved_folders.take_out(folder / backup.SLURM_STATE, USAGE, state, "slurm")
        if (packed := folder / backup.BUDGETS).exists():
            restore_budgets(packed, self.head.folders.budgets, same_cluster=is_same)
        if (packed := folder / backup.GOVERNOR).exists():
            restore_governor(packed, self.head.folders.governor)

    def _start(self, checked: Checked) -> None:
        """Start the daemons, with no job id that was used before.

        slurmctld keeps the higher of its own next id and of FirstJobId, and saves it when it stops.
        """
        settings = self.slurm_conf.read_text(encoding="utf-8")
        changed = f"{_FIRST_JOB.sub('', settings).rstrip()}\nFirstJobId={checked.first_job_id}\n"
        files.write_atomically(self.slurm_conf, changed.encode(), mode=0o644)
        try:
            self._start_slurmdbd()
            self._save_job_id()
        finally:
            files.write_atomically(self.slurm_conf, settings.encode(), mode=0o644)
        self._systemctl("start", SLURM[0])
        self._wait_for_slurmctld()
        if (next_job_id := self.head.next_job_id()) < checked.first_job_id:
            raise BackupError(
                f"the next job would get the id {next_job_id}, which may have been used:"
                f" it should be {checked.first_job_id} or more"
            )

    def _start_tracking(self, checked: Checked) -> None:
        for name in checked.restores:
            if name in TRACKING:
                try:
                    self._systemctl("start", TRACKING[name])
                except BackupError as error:
                    raise BackupError(f"all is restored, but {error}") from error

    def _start_slurmdbd(self) -> None:
        """Start slurmdbd, and wait for its answer.

        It may have to convert an older database first.
        """
        self._allow(SLURM[1])
        self._systemctl("start", SLURM[1])
        if reason := slurmdbd.wait_for_answer(self.head.runner, self.clock, START_SECONDS):
            raise BackupError(f"slurmdbd does not answer: {reason}")

    def _save_job_id(self) -> None:
        """Let slurmctld read FirstJobId and save it.

        It may not start without the new job ids.
        """
        self._allow(SLURM[0])
        try:
            self._systemctl("start", SLURM[0])
            self._wait_for_slurmctld()
            self._systemctl("stop", SLURM[0])
        except BackupError:
            self._forbid(SLURM[0])
            with suppress(BackupError):
                self._systemctl("stop", SLURM[0])
            raise

    def _wait_for_slurmctld(self) -> None:
        deadline = self.clock.monotonic() + START_SECONDS
        while True:
            try:
                self.head.next_job_id()
            except BackupError:
                if self.clock.monotonic() > deadline:
                    raise
                self.clock.sleep(POLL_SECONDS)
            else:
                return

    def _systemctl(self, verb: str, unit: str) -> None:
        argv = [SYSTEMCTL, verb, unit]
        result = self.head.runner.run(argv, timeout=SYSTEMCTL_SECONDS)
        if result.returncode:
            raise BackupError(f"systemctl {verb} {unit} failed: {result.stderr.strip()[-300:]}")
