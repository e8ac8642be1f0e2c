"""Mount an instance's own disk as /scratch, for files that may be lost with the instance.

    /scratch/.users/2001      what the jobs of user 2001 on this node see as /scratch
    /scratch/.job-mounts      the files of jobs' own /tmp, until the job's end

Without such a disk these folders are on the root disk. Only a disk whose model is EC2's instance
storage is used. It must be empty, or hold the filesystem that an earlier call made. Of several
disks the first is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.node import setup_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurmplugins.system.command import Runner

MODEL: Final = "Amazon EC2 NVMe Instance Storage"
LABEL: Final = "toolkit-scratch"
USERS: Final = ".users"
JOB_FILES: Final = ".job-mounts"
UNKNOWN_CONTENT: Final = 2
"""Exit code of blkid for a disk with no content that it knows."""


def mount(root: Path, runner: Runner) -> str:
    """Mount the disk, and format it first if it is empty.

    Returns the disk, or an empty string where there is none. Raises BootError. Safe to repeat.
    """
    target = paths.SCRATCH
    disk = next(_disks(root), "")
    if not disk or setup_command.is_mounted(runner, str(target)):
        return disk
    label_result = runner.run(
        ["/usr/sbin/blkid", "-p", "-s", "LABEL", "-o", "value", disk], timeout=30
    )
    if label_result.returncode == UNKNOWN_CONTENT:
        # nodiscard: trimming terabytes takes longer than a boot may.
        options = "nodiscard,lazy_itable_init=1,lazy_journal_init=1"
        argv = ["/usr/sbin/mkfs.ext4", "-q", "-m", "0", "-L", LABEL, "-E", options, disk]
        _run(runner, argv)
    elif label_result.stdout.strip() != LABEL:
        raise BootError(
            f"{disk} is not empty, and not labelled {LABEL}: {label_result.stdout.strip()[:40]!r}"
        )
    (root / target.relative_to("/")).mkdir(exist_ok=True)
    _run(runner, ["/usr/bin/mount", "-o", "noatime,nosuid,nodev", disk, str(target)])
    _run(runner, ["/usr/bin/chmod", "1777", str(target)])
    return disk


def make_folders(root: Path, runner: Runner, *, disk: str) -> None:
    """Make the folders of jobs, on the disk if there is one.

    Raises BootError or OSError. Safe to repeat.
    """
    scratch = root / paths.SCRATCH.relative_to("/")
    job_mounts = root / paths.JOB_MOUNTS.relative_to("/")
    for folder, mode in ((scratch, 0o1777), (scratch / USERS, 0o711), (job_mounts, 0o711)):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
    target = str(paths.JOB_MOUNTS)
    if not disk or setup_command.is_mounted(runner, target):
        return
    (scratch / JOB_FILES).mkdir(mode=0o711, exist_ok=True)
    # A job has another /scratch: Slurm must reach these files by a path of their own.
    _run(runner, ["/usr/bin/mount", "--bind", str(paths.SCRATCH / JOB_FILES), target])


def _disks(root: Path) -> Iterator[str]:
    for device in sorted((root / "sys/block").glob("nvme*")):
        model_file = device / "device/model"
        has_partitions = any(device.glob(f"{device.name}p*"))
        if (
            model_file.is_file()
            and model_file.read_text(encoding="utf-8", errors="replace").strip() == MODEL
            and not has_partitions
            and (root / "dev" / device.name).exists()
        ):
            yield f"/dev/{device.name}"


def _run(runner: Runner, argv: list[str]) -> None:
    setup_command.run(runner, argv, timeout=60, max_output=200)
