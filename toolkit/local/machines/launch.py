"""Become a machine: a script of its own, so that it starts in 30 ms and imports nothing of ours.

Called as `python -I -S launch.py PLAN`, with the path of a JSON file:
    argv     what to become
    cgroups  the control groups to join, an absolute path each
    overlay  null, or {"lower": [newest, …, oldest], "upper", "work", "root"}
    parent   true: end when the caller ends

The overlay is mounted in a mount namespace of this process's own. The host's mount table never
shows it and nothing needs unmounting: it is gone when the last process of the machine is.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from pathlib import Path

CLONE_NEWNS = 0x00020000
MS_REC = 0x4000
MS_SLAVE = 1 << 19
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise what errno says if a call failed."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def private_mounts() -> None:
    """Enter a mount namespace that sees the host's unmounts and shows it nothing."""
    check(_libc.unshare(CLONE_NEWNS), "unshare the mount namespace")
    # Slave, not private: a network namespace deleted on the host must go away here too.
    check(_libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "make / a slave mount")


def escape(path: str) -> str:
    """Quote what separates layers and options in overlay's option string."""
    for char in "\\:,":
        path = path.replace(char, "\\" + char)
    return path


def mount_overlay(lower: list[str], upper: str, work: str, root: str) -> None:
    """Mount the stack on `root`, without fsync: a local machine need not survive a host crash."""
    shutil.rmtree(Path(work) / "work" / "incompat", ignore_errors=True)  # of the last volatile run
    options = (
        f"lowerdir={':'.join(escape(layer) for layer in lower)},"
        f"upperdir={escape(upper)},workdir={escape(work)},index=off,xino=off,volatile"
    )
    check(
        _libc.mount(b"overlay", os.fsencode(root), b"overlay", 0, os.fsencode(options)),
        "mount the machine's overlay",
    )


def main() -> None:
    """Join, mount, become."""
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    if plan["parent"]:
        check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tie to the parent")
    for group in plan["cgroups"]:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    private_mounts()
    if plan["overlay"]:
        mount_overlay(**plan["overlay"])
    os.execvpe(plan["argv"][0], plan["argv"], plan["env"])  # noqa: S606 - argv, no shell


if __name__ == "__main__":
    main()
