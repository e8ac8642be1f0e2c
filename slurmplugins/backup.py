"""Take and restore backups, on the head as root. What it prints is JSON.

slurm-backup take BUCKET        Write a backup to this bucket. A timer does so.
slurm-backup take BUCKET before-restore  The same, of what a restore then replaces.
slurm-backup begun              Print which restore began and is not complete, or {}.
slurm-backup check ID SHA256    Check a backup below restore/ in the cluster's bucket.
slurm-backup restore ID SHA256  Check it, then replace the databases with it.

SHA256 is that of the manifest, which has those of all other objects. While the restore of another
backup is not complete, `check` and `restore` refuse, unless the word `instead` follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.client import client
from slurmplugins.cloud.files import S3Files
from slurmplugins.cloud.stores import S3Store
from slurmplugins.config import burst, paths
from slurmplugins.errors import BadName, EngineError
from slurmplugins.head.databases import Databases
from slurmplugins.head.restore_backup import Restore, begun_on
from slurmplugins.head.take_backup import BackupStatus, Head, HeadFolders, take
from slurmplugins.model import backup
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.streams import SystemStreams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.system.logger import Log

RESTORES: Final = ("check", "restore")
BEFORE_RESTORE: Final = "before-restore"
INSTEAD: Final = "instead"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parsed command line."""

    command: str
    bucket: str = ""
    backup_id: str = ""
    sha256: str = ""
    word: str = ""
    """`before-restore` or `instead`, where it was given."""


def main() -> None:
    """Run the command and exit with 0 or 1."""
    log = program.open_log("backup")

    def work() -> None:
        arguments = parse(sys.argv[1:])
        os.umask(0o077)
        config = burst.load(paths.BURST)
        head = make_head(config)
        if arguments.command == "take":
            _take(head, config, arguments, log)
        elif arguments.command == "begun":
            begun = begun_on(head)
            sys.stdout.write(json.dumps(asdict(begun) if begun else {}) + "\n")
        else:
            _restore(head, config, arguments, log)

    sys.exit(program.run_to_exit_code(log, work))


def parse(arguments: Sequence[str]) -> Arguments:
    """Parse the arguments that this module's docstring shows.

    Raises BadName for anything else.
    """
    match arguments:
        case ["begun"]:
            return Arguments("begun")
        case ["take", bucket, *words] if words in ([], [BEFORE_RESTORE]):
            return Arguments("take", bucket=bucket, word="".join(words))
        case [command, backup_id, sha256, *words] if (
            command in RESTORES and backup.is_id(backup_id) and words in ([], [INSTEAD])
        ):
            return Arguments(command, backup_id=backup_id, sha256=sha256, word="".join(words))
    raise BadName(f"unknown arguments: {' '.join(arguments)[:80]!r}")


def make_head(config: BurstConfig) -> Head:
    """Put the parts of this head together."""
    runner = SystemRunner()
    databases = Databases(runner, SystemStreams())
    return Head(config.cluster, config.slurm_bin, runner, databases, HeadFolders())


def _take(head: Head, config: BurstConfig, arguments: Arguments, log: Log) -> None:
    def connect() -> object:
        return client("s3", config.region, config.endpoint_url)

    clock, status = SystemClock(), BackupStatus(S3Store(config.bucket, connect))
    began = clock.monotonic()
    try:
        store, is_before = S3Files(arguments.bucket, connect), arguments.word == BEFORE_RESTORE
        manifest = take(head, store, clock, before_restore=is_before)
    except (EngineError, OSError) as error:
        with contextlib.suppress(EngineError):  # the age of the last good one tells it too
            status.failed(str(error), clock.now())
        raise
    status.succeeded(manifest, clock.monotonic() - began)
    log.info(LogEvent.BACKUP_TAKEN, backup=manifest.id, objects=len(manifest.objects))
    sys.stdout.write(json.dumps(manifest.to_json()) + "\n")


def _restore(head: Head, config: BurstConfig, arguments: Arguments, log: Log) -> None:
    store = S3Files(config.bucket, lambda: client("s3", config.region, config.endpoint_url))
    prefix = f"{backup.RESTORE_PREFIX}/{arguments.backup_id}"
    is_instead = arguments.word == INSTEAD
    restore = Restore(head, store, prefix, arguments.sha256, SystemClock(), instead=is_instead)
    if arguments.command == "check":
        checked = restore.check()
    else:
        checked = restore.run()
        log.info(LogEvent.BACKUP_RESTORED, backup=arguments.backup_id)
    sys.stdout.write(json.dumps(asdict(checked)) + "\n")


if __name__ == "__main__":
    main()
