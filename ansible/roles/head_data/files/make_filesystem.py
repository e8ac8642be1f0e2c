"""Make an ext4 filesystem on a volume that nobody has written to.

make_filesystem.py DEVICE

EBS gives new volumes with zeros alone. A volume that begins with anything else is left as it is,
whether it holds a filesystem or not: mounting it says what is wrong, and a person decides.
Prints `changed` or `unchanged`.
"""

import subprocess
import sys
from pathlib import Path

BEGINNING = 4 * 1024 * 1024
"""Bytes. Every filesystem, partition table and volume manager has its mark in the first 70 KiB."""
MKFS = "/usr/sbin/mkfs.ext4"


def is_blank(device: Path) -> bool:
    """Return whether the device begins with zeros alone."""
    with device.open("rb") as volume:
        beginning = volume.read(BEGINNING)
    if len(beginning) < BEGINNING:
        raise SystemExit(f"{device} has only {len(beginning)} bytes")
    return not any(beginning)


def main(argv: list[str]) -> int:
    device = Path(argv[0])
    if not is_blank(device):
        print("unchanged")
        return 0
    subprocess.run([MKFS, "-q", "-L", "head-data", str(device)], check=True)
    print("changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
