"""A backup taken now, and a backup restored into a cluster, from the admin's computer.

The head's role can't read backups. So an admin's credentials copy one to the cluster's own bucket,
where the head reads it, and S3 deletes it again after a day.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import backup
from toolkit.deploy import kept_records, names
from toolkit.deploy.backup_store import NEWEST
from toolkit.deploy.slurm_accounts import apply_accounts
from toolkit.deploy.storage import Bucket
from toolkit.errors import BackupUnusable, HeadCommandFailed
from toolkit.head_runner import SlurmAnswerError

if TYPE_CHECKING:
    from slurmplugins.model.backup import BegunRestore
    from toolkit.config import ClusterConfig
    from toolkit.deploy.backup_store import Backup, BackupStore
    from toolkit.deploy.session import Clients
    from toolkit.head_runner import Runner
    from toolkit.output import Reporter

PROGRAM: Final = "/opt/slurm-toolkit/bin/slurm-backup"
SECONDS: Final = 6 * 3600.0
"""A limit for a program that hangs; large databases take an hour."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup that was just taken."""

    id: str
    bytes: int


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The check's result: what a restore would bring, and what it would replace."""

    backup: str
    cluster: str
    """The cluster that the backup is of."""
    problems: tuple[str, ...]
    overwrites: tuple[str, ...]
    restores: tuple[str, ...]
    first_job_id: int
    resumed: bool = False
    """An earlier restore was interrupted, and this one completes it."""

    def text(self) -> str:
        """Return the plan as text for people."""
        lines = [
            *(["completes a restore that was cut off"] if self.resumed else []),
            f"backup {self.backup} of cluster {self.cluster}: all hashes are right",
            f"replaces: {', '.join(self.overwrites)}",
            f"restores: {', '.join(self.restores)}, and the instance ledger",
            f"job ids go on at {self.first_job_id}",
        ]
        return "\n".join([*lines, *(f"refused: {problem}" for problem in self.problems)])


def take(
    config: ClusterConfig, clients: Clients, head: Runner, *, before_restore: bool = False
) -> Taken:
    """Have the head take a backup now. Raises BackupUnusable."""
    words = ["take", names.backup_bucket(config, clients.account)]
    answer = _answer(head, [*words, "before-restore"] if before_restore else words)
    try:
        return Taken(str(answer["id"]), sum(int(item["bytes"]) for item in answer["objects"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SlurmAnswerError("slurm-backup on the head node gave no manifest") from error


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore of one backup into the cluster of a configuration."""

    config: ClusterConfig
    clients: Clients
    head: Runner
    source: BackupStore
    report: Reporter
    instead: bool = False
    """Give up a restore that is not complete, and restore another backup."""

    def choose(self, reference: str) -> Backup:
        """Return the backup to restore.

        While a restore is not complete, `latest` is the backup that it began with. Raises
        BackupMissing or BackupUnusable.
        """
        begun = self._begun()
        if begun is None:
            return self.source.choose(reference)
        if reference == NEWEST and (self.instead or not begun.backup):
            raise BackupUnusable(
                "an earlier restore is not complete, and the newest backup may be of what it was to"
                " replace; nothing was changed",
                next_step="name the id of a backup: `toolkit backup list` shows those there are",
            )
        if self.instead or not begun.backup:
            return self.source.choose(reference)
        if reference not in {NEWEST, begun.backup} or self.source.cluster != begun.cluster:
            raise _not_complete(begun, self.config.cluster)
        return self.source.choose(begun.backup)

    def _begun(self) -> BegunRestore | None:
        answer = _answer(self.head, ["begun"])
        try:
            return backup.begun_restore(answer) if answer else None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SlurmAnswerError("slurm-backup on the head node gave no result") from error

    def _words(self, command: str, backup_id: str, sha256: str) -> list[str]:
        return [command, backup_id, sha256, *(["instead"] if self.instead else [])]

    def plan(self, chosen: Backup) -> RestorePlan:
        """Copy the backup to the cluster's bucket; have the head check it.

        Changes nothing else. Raises BackupUnusable.
        """
        manifest, sha256 = self.source.manifest(chosen.id)
        with self.report.phase("Copying the backup to the cluster's bucket") as phase:
            for name in (*(item.name for item in manifest.objects), backup.MANIFEST):
                phase.update(name)
                self._bucket.copy_from(
                    self.source.bucket.name,
                    f"{backup.PREFIX}/{chosen.id}/{name}",
                    f"{backup.RESTORE_PREFIX}/{chosen.id}/{name}",
                )
        with self.report.phase("Checking it on the head node"):
            checked = _answer(self.head, self._words("check", chosen.id, sha256))
        return _plan(chosen.id, manifest.cluster, checked)

    def run(self, plan: RestorePlan) -> int:
        """Restore a plan's backup; return the number of new ledger entries.

        May be repeated. Raises BackupUnusable.
        """
        _, sha256 = self.source.manifest(plan.backup)
        with self.report.phase("Restoring the databases"):
            _answer(self.head, self._words("restore", plan.backup, sha256))
        with self.report.phase("Restoring the instance ledger") as phase:
            entries = self._restore_ledger(plan.cluster)
            phase.result(f"{entries} instances")
        # Last: it refuses accounts that somebody else made.
        apply_accounts(self.config, self.head, self.report)
        return entries

    def _restore_ledger(self, cluster: str) -> int:
        """Bring the kept ledger, and that of a living old cluster."""
        s3 = self.clients.client("s3")
        entries = kept_records.bring_back(s3, self.source.bucket.name, self._bucket.name)
        source = self.config.model_copy(update={"cluster": cluster})
        old = Bucket(s3, names.bucket(source, self.clients.account))
        if old.name != self._bucket.name and old.exists():
            entries += kept_records.take_over(s3, old.name, self._bucket.name)
        own_backups = names.backup_bucket(self.config, self.clients.account)
        if self.source.bucket.name != own_backups:
            kept_records.copy_pages(s3, self.source.bucket.name, own_backups)
        return entries

    @property
    def _bucket(self) -> Bucket:
        return Bucket(self.clients.client("s3"), names.bucket(self.config, self.clients.account))


def _not_complete(begun: BegunRestore, cluster: str) -> BackupUnusable:
    """Return the error for another backup than the one that was begun."""
    source = "" if begun.cluster == cluster else f" --from-cluster {begun.cluster}"
    return BackupUnusable(
        f"the restore of backup {begun.backup} of cluster {begun.cluster} is not complete;"
        " nothing was changed",
        next_step=f"`toolkit backup restore {begun.backup}{source} --yes` completes it;"
        " `--instead` gives it up and restores another backup",
    )


def _plan(backup_id: str, cluster: str, checked: dict[str, Any]) -> RestorePlan:
    try:
        return RestorePlan(
            backup=backup_id,
            cluster=cluster,
            problems=tuple(map(str, checked["problems"])),
            overwrites=tuple(map(str, checked["overwrites"])),
            restores=tuple(map(str, checked["restores"])),
            first_job_id=int(checked["first_job_id"]),
            resumed=bool(checked["resumed"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SlurmAnswerError("slurm-backup on the head node gave no result") from error


def _answer(head: Runner, words: list[str]) -> dict[str, Any]:
    """Return the answer of slurm-backup. Raises BackupUnusable with its reason."""
    try:
        text = head.run([PROGRAM, *words], timeout=SECONDS)
    except HeadCommandFailed as error:
        reason = error.stderr.strip().removeprefix("BackupError: ") or error.message
        raise BackupUnusable(
            f"slurm-backup {words[0]} on the head node: {reason[-1000:]}",
            next_step="mend the cause, then run the same command again",
        ) from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SlurmAnswerError("slurm-backup on the head node gave no JSON") from error
    if not isinstance(value, dict):
        raise SlurmAnswerError("slurm-backup on the head node gave no JSON object")
    return value
