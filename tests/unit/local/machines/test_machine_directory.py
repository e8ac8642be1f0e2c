"""A machine continues on top of an image of its own disk."""

from toolkit.local.machines.machine_directory import Disk, MachineRecord

BASE, IMAGE = "ami-00000000000000001", "ami-00000000000000002"


def test_the_disk_of_a_machine_is_rebased_on_its_image(tmp_path):
    disk = Disk(tmp_path / "i-1")
    (disk.home / "work" / "work").mkdir(parents=True)
    disk.write("machine.json", {"image_id": BASE, "environment": {"A": "b"}})
    disk.rebase_on(IMAGE)
    assert disk.record() == MachineRecord(IMAGE, {"A": "b"})
    assert not (disk.home / "work").exists()
