"""A Debian tree with Slurm and pyslurm, in which a program of ours runs.

TOOLKIT_TEST_PYSLURM names its folder (docs/testing.md). The program has namespaces of its own, so
its slurmctld is on a loopback of its own. The tree keeps nothing of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = os.environ.get("TOOLKIT_TEST_PYSLURM", "")
CHECKOUT = Path(__file__).parents[3]
PROGRAM_SECONDS = 600.0
_NAMESPACES = ("--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child")
_ENTER = """
set -e
tree=$1; checkout=$2; shift 2
mount --make-rprivate /
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount -t sysfs -o ro sysfs "$tree/sys" || true
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/dev/shm"
for folder in run tmp srv etc/slurm var/log var/lib/slurm; do
  mkdir -p "$tree/$folder"
  mount -t tmpfs -o mode=755 tmpfs "$tree/$folder"
done
mkdir "$tree/tmp/checkout"
mount --bind "$checkout" "$tree/tmp/checkout"
mount -o remount,ro,bind "$tree/tmp/checkout"
exec chroot "$tree" /usr/bin/env -i -C /tmp/checkout PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  HOME=/root LC_ALL=C.UTF-8 PYTHONPATH=/tmp/checkout PYTHONDONTWRITEBYTECODE=1 "$@"
"""


def live_cluster(*arguments: str, program: str = "live_cluster") -> str:
    """Run a program of this folder in the tree; return its output."""
    enter = ["unshare", *_NAMESPACES, "bash", "-c", _ENTER, "enter", FOLDER, str(CHECKOUT)]
    done = subprocess.run(
        [*enter, "python3", "-m", f"{__package__}.{program}", *arguments],
        capture_output=True, text=True, check=False, timeout=PROGRAM_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(live_cluster(*sys.argv[1:]))
