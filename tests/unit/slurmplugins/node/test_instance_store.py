"""Instance storage becomes /scratch, and no other disk is ever written to."""

from pathlib import Path

import pytest

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.node import instance_store
from tests.fakes.runner import FakeRunner


@pytest.fixture
def runner() -> FakeRunner:
    made = FakeRunner()
    made.answer("/usr/bin/mountpoint", returncode=1)
    made.answer("/usr/sbin/blkid", returncode=instance_store.UNKNOWN_CONTENT)
    return made


def disk(root: Path, name: str, model: str = instance_store.MODEL, *, node: bool = True) -> Path:
    block = root / "sys/block" / name
    (block / "device").mkdir(parents=True)
    (block / "device/model").write_text(f"{model}  \n")
    (root / "dev").mkdir(exist_ok=True)
    if node:
        (root / "dev" / name).touch()
    return block


def programs(runner: FakeRunner) -> list[str]:
    return [Path(argv[0]).name for argv in runner.commands]


def test_an_empty_disk_is_made_a_filesystem_and_mounted(tmp_path: Path, runner: FakeRunner):
    disk(tmp_path, "nvme0n1", "Amazon Elastic Block Store")
    disk(tmp_path, "nvme1n1")
    assert instance_store.mount(tmp_path, runner) == "/dev/nvme1n1"
    assert programs(runner) == ["mountpoint", "blkid", "mkfs.ext4", "mount", "chmod"]
    assert all("/dev/nvme0n1" not in argv for argv in runner.commands)


def test_after_a_reboot_the_filesystem_is_mounted_as_it_is(tmp_path: Path, runner: FakeRunner):
    disk(tmp_path, "nvme1n1")
    runner.answer("/usr/sbin/blkid", stdout=f"{instance_store.LABEL}\n")
    instance_store.mount(tmp_path, runner)
    assert "mkfs.ext4" not in programs(runner)
    assert "mount" in programs(runner)


def test_a_disk_with_something_on_it_is_left_alone(tmp_path: Path, runner: FakeRunner):
    disk(tmp_path, "nvme1n1")
    runner.answer("/usr/sbin/blkid", stdout="data\n")
    with pytest.raises(BootError, match="not labelled"):
        instance_store.mount(tmp_path, runner)
    assert programs(runner) == ["mountpoint", "blkid"]


def test_disks_that_are_another_instances_or_partitioned_are_not_looked_at(
    tmp_path: Path, runner: FakeRunner
):
    """Offer a disk without a device node, and a partitioned disk.

    A container sees its host's disks in /sys, and has no device nodes for them.
    """
    disk(tmp_path, "nvme1n1", node=False)
    (disk(tmp_path, "nvme2n1") / "nvme2n1p1").mkdir()
    assert instance_store.mount(tmp_path, runner) == ""
    assert runner.commands == []


def modes(root: Path) -> dict[str, int]:
    folders = (paths.SCRATCH, paths.SCRATCH / instance_store.USERS, paths.JOB_MOUNTS)
    return {
        str(folder): (root / folder.relative_to("/")).stat().st_mode & 0o7777 for folder in folders
    }


def test_users_can_not_list_or_make_the_folders_of_each_other(tmp_path: Path, runner: FakeRunner):
    instance_store.make_folders(tmp_path, runner, disk="")
    assert modes(tmp_path) == {
        "/scratch": 0o1777,
        "/scratch/.users": 0o711,
        "/var/lib/slurm-toolkit/job-mounts": 0o711,
    }
    assert runner.commands == []


def test_the_files_of_jobs_are_on_the_nodes_own_disk_by_a_path_outside_of_scratch(
    tmp_path: Path, runner: FakeRunner
):
    """Bind the folder once.

    In a job /scratch is another folder, and Slurm reaches the files by this path.
    """
    instance_store.make_folders(tmp_path, runner, disk="/dev/nvme1n1")
    bind = ["/usr/bin/mount", "--bind", "/scratch/.job-mounts", str(paths.JOB_MOUNTS)]
    assert runner.commands[-1] == bind
    runner.answer("/usr/bin/mountpoint", returncode=0)
    instance_store.make_folders(tmp_path, runner, disk="/dev/nvme1n1")
    assert runner.commands.count(bind) == 1
