"""A cluster's backups: their stack, which outlives the cluster's own, and what is in it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from slurmplugins.errors import BackupError
from slurmplugins.model import backup
from toolkit.deploy import names
from toolkit.deploy.changes import StackChanges
from toolkit.deploy.stack import tls_only
from toolkit.deploy.storage import Bucket
from toolkit.deploy.templates import render
from toolkit.errors import BackupMissing, BackupUnusable

if TYPE_CHECKING:
    from slurmplugins.model.backup import Manifest
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.deploy.stack_plan import ResourceChange, StackPlan
    from toolkit.output import Reporter

# Days that a version of a backup stays which was written over, or has expired.
OLD_VERSION_DAYS = 14
NEWEST = "latest"  # in the place of a backup's id


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup in the bucket."""

    id: str
    at: float
    bytes: int

    @property
    def time(self) -> str:
        """Return its date and time for people."""
        return f"{datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M UTC}"


def backups_template(config: ClusterConfig, account: str, *, expires: bool = True) -> str:
    """Return the template of the backups' stack.

    Without `expires`, what is there stays: no newer backup will follow it.
    """
    context = {
        "cluster": config.cluster,
        "bucket": names.backup_bucket(config, account),
        "prefix": backup.PREFIX,
        "tag": tags.BACKUPS_OF,
        "keep_days": config.backups.days if expires else 0,
        "old_version_days": OLD_VERSION_DAYS,
        "tls_only": tls_only(config),
    }
    return render("backups.yaml.j2", context)


class BackupStore:
    """The backups of one cluster. Every call may be repeated."""

    def __init__(self, config: ClusterConfig, clients: Clients, report: Reporter) -> None:
        self._config = config
        self._clients = clients
        self._report = report
        self.bucket = Bucket(clients.client("s3"), names.backup_bucket(config, clients.account))

    def prepare(self, *, expires: bool = True) -> tuple[ResourceChange, ...]:
        """Make or update the stack; return its changes.

        Without `expires`, no backup in it expires.
        """
        changes = self._changes
        plan = changes.plan(self._template(expires=expires))
        if plan.change_set:
            with self._report.phase("Preparing the bucket of backups") as phase:
                changes.execute(plan, phase)
        return plan.changes

    def preview(self) -> tuple[ResourceChange, ...]:
        """Return what `prepare` would change; changes nothing."""
        plan: StackPlan = self._changes.preview(self._template(expires=True))
        return plan.changes

    def find(self) -> tuple[Backup, ...]:
        """Return the complete backups, oldest first.

        Raises BackupMissing without a bucket.
        """
        if not self.bucket.exists():
            raise BackupMissing(
                f"cluster {self._config.cluster} has no bucket of backups ({self.bucket.name})",
                next_step="`toolkit deploy` makes it, and backups go there from then on",
            )
        sizes: dict[str, int] = {}
        complete = set()
        for key, size in self.bucket.sizes(f"{backup.PREFIX}/"):
            backup_id, _, name = key.removeprefix(f"{backup.PREFIX}/").partition("/")
            sizes[backup_id] = sizes.get(backup_id, 0) + size
            if name == backup.MANIFEST and backup.is_id(backup_id):
                complete.add(backup_id)
        return tuple(
            Backup(backup_id, backup.time_of(backup_id), sizes[backup_id])
            for backup_id in sorted(complete)
        )

    @property
    def cluster(self) -> str:
        """Return the cluster that the backups are of."""
        return self._config.cluster

    def choose(self, reference: str) -> Backup:
        """Return the backup of this id, or the newest for `latest`.

        `latest` passes over what was taken before a restore: a restore that is repeated would else
        bring back what it was to replace. Raises BackupMissing.
        """
        for item in reversed(self.find()):
            if reference == item.id or (reference == NEWEST and not self._before_restore(item)):
                return item
        raise BackupMissing(
            f"cluster {self.cluster} has no complete backup {reference}",
            next_step="`toolkit backup list` shows those that there are",
        )

    def _before_restore(self, item: Backup) -> bool:
        try:
            return self.manifest(item.id)[0].before_restore
        except BackupUnusable:
            return False  # the restore says what is wrong with it

    def manifest(self, backup_id: str) -> tuple[Manifest, str]:
        """Return a backup's manifest and its SHA-256. Raises BackupUnusable."""
        data = self.bucket.read(f"{backup.PREFIX}/{backup_id}/{backup.MANIFEST}") or b""
        try:
            return backup.parse(data), hashlib.sha256(data).hexdigest()
        except BackupError as error:
            raise BackupUnusable(f"backup {backup_id}: {error.message}") from error

    @property
    def _changes(self) -> StackChanges:
        tag = {tags.BACKUPS_OF: self._config.cluster}
        return StackChanges(self._clients, names.backups_stack(self._config), tags=tag)

    def _template(self, *, expires: bool) -> str:
        return backups_template(self._config, self._clients.account, expires=expires)
