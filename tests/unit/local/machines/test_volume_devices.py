"""Loop devices of volumes: found by their file, connected once, freed at the end."""

from pathlib import Path

import pytest

from toolkit.local.machines.driver import AttachedVolume, CommandResult
from toolkit.local.machines.errors import MachineError
from toolkit.local.machines.volume_devices import VolumeDevices

VOLUME = "vol-0123456789abcdef0"


class LoopHost:
    """A host with losetup, and its devices below `sys` and `dev`."""

    def __init__(self, sys: Path, dev: Path) -> None:
        self.sys, self.dev = sys, dev
        self.commands: list[list[str]] = []
        self.taken = 0  # devices that another cloud takes just before us

    def run(self, argv, *, stdin=b"", timeout=30, env=None):
        self.commands.append(list(argv[1:]))
        match list(argv[1:]):
            case ["--find"]:
                return CommandResult(0, f"{self._free()}\n".encode(), b"")
            case ["--set-capacity", _]:
                pass
            case ["--detach", device]:
                (self.sys / Path(device).name / "loop/backing_file").unlink()
            case [device, file]:
                if self.taken:
                    self.taken -= 1
                    self.bind(Path(device).name, "/elsewhere/x.img")
                    return CommandResult(1, b"", b"failed to set up loop device: busy")
                self.bind(Path(device).name, file)
        return CommandResult(0, b"", b"")

    def _free(self) -> Path:
        used = {path.parent.parent.name for path in self.sys.glob("loop*/loop/backing_file")}
        name = next(f"loop{n}" for n in range(99) if f"loop{n}" not in used)
        (self.dev / name).touch()
        return self.dev / name

    def bind(self, name, file):
        (self.sys / name / "loop").mkdir(parents=True, exist_ok=True)
        (self.sys / name / "queue").mkdir(exist_ok=True)
        (self.sys / name / "loop/backing_file").write_text(f"{file}\n")


@pytest.fixture
def host(tmp_path):
    for name in ("sys", "dev"):
        (tmp_path / name).mkdir()
    return LoopHost(tmp_path / "sys", tmp_path / "dev")


@pytest.fixture
def devices(host, tmp_path):
    return VolumeDevices(tmp_path / "volumes", host, host.sys, host.dev)


def test_a_volume_keeps_its_device_and_shows_its_new_size(devices, host):
    first = devices.connect(VOLUME)
    assert devices.connect(VOLUME) == first == devices.find(VOLUME)
    assert host.commands[-1] == ["--set-capacity", str(first)]


def test_a_device_that_another_cloud_takes_is_not_used(devices, host):
    host.taken = 2
    assert devices.connect(VOLUME).name == "loop2"
    host.taken = 99
    with pytest.raises(MachineError, match="busy"):
        devices.connect("vol-0fedcba9876543210")


def test_only_own_devices_are_freed_also_of_deleted_files(devices, host):
    devices.connect(VOLUME)
    host.bind("loop5", "/other/volumes/vol-0123456789abcdef0.img")
    host.bind("loop6", f"{devices.file('vol-0fedcba9876543210')} (deleted)")
    assert devices.disconnect_all() == (VOLUME, "vol-0fedcba9876543210")
    assert [path.parent.parent.name for path in host.sys.glob("*/loop/backing_file")] == ["loop5"]
    devices.disconnect(VOLUME)


def test_fsync_ends_in_the_hosts_memory(devices, host):
    device = devices.connect(VOLUME)
    assert (host.sys / device.name / "queue/write_cache").read_text() == "write through"


@pytest.mark.parametrize("bad", ["vol-../../x", "snap-0123456789abcdef0", "", f"{VOLUME}\n"])
def test_an_invalid_volume_id_is_refused(bad):
    with pytest.raises(MachineError):
        AttachedVolume(bad, 8)


def test_a_volume_has_the_name_that_udev_gives_it_on_ec2():
    assert str(AttachedVolume(VOLUME, 8).device) == (
        "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
    )
