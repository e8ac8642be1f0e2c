"""The backup of the shared filesystem that `toolkit destroy` makes, if cluster.yaml asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from toolkit.deploy.instances import tag_values
from toolkit.errors import DestroyIncomplete
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.config import ClusterConfig
    from toolkit.output import Reporter

ROLE = "final-backup"  # the value of the backup's tag toolkit:role
POLL_SECONDS = 10.0
# FSx copies all data of a filesystem that has no backup yet.
LONGEST_SECONDS = 24 * 3600.0
DONE, FAILED = "AVAILABLE", "FAILED"


def make(
    fsx: Any,
    config: ClusterConfig,
    report: Reporter,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> None:
    """Back up each of the cluster's filesystems, and wait.

    A backup that an interrupted destroy began is waited for. Raises DestroyIncomplete if one fails.
    """
    for filesystem in _filesystems(fsx, config.cluster):
        with report.phase(f"Backing up filesystem {filesystem}") as phase:
            backup = _find(fsx, filesystem) or _begin(fsx, config.cluster, filesystem)
            wait = Wait(LONGEST_SECONDS, sleep, clock, pause=POLL_SECONDS)
            while (state := _state(fsx, backup)) != DONE:
                phase.update(state.lower())
                if state == FAILED or wait.is_over:
                    raise DestroyIncomplete(
                        f"FSx has no backup of filesystem {filesystem}: {backup} is {state};"
                        " the filesystem and the bucket are as they were",
                        next_step="look at it in FSx, or set shared.final_backup: false; then"
                        " run destroy again",
                    )
                wait.pause()
            phase.result(f"{backup} stays")


def _filesystems(fsx: Any, cluster: str) -> list[str]:
    pages = fsx.get_paginator("describe_file_systems").paginate()
    return [
        str(item["FileSystemId"])
        for page in pages
        for item in page["FileSystems"]
        if tag_values(item).get(tags.CLUSTER) == cluster
    ]


def _find(fsx: Any, filesystem: str) -> str:
    """Return a final backup that is there already, or nothing."""
    filters = [{"Name": "file-system-id", "Values": [filesystem]}]
    for page in fsx.get_paginator("describe_backups").paginate(Filters=filters):
        for item in page["Backups"]:
            if tag_values(item).get(tags.ROLE) == ROLE and item.get("Lifecycle") != FAILED:
                return str(item["BackupId"])
    return ""


def _begin(fsx: Any, cluster: str, filesystem: str) -> str:
    wanted_tags = {tags.CLUSTER: cluster, tags.ROLE: ROLE, tags.NAME: f"{cluster}-shared"}
    answer = fsx.create_backup(
        FileSystemId=filesystem,
        Tags=[{"Key": key, "Value": value} for key, value in wanted_tags.items()],
    )
    return str(answer["Backup"]["BackupId"])


def _state(fsx: Any, backup: str) -> str:
    (item,) = fsx.describe_backups(BackupIds=[backup])["Backups"]
    return str(item.get("Lifecycle", ""))
