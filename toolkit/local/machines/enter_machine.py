"""Become a machine: a script of its own, so that it starts in 30 ms and imports nothing of ours.

Called as `python -I -S enter_machine.py PLAN`, with the path of a JSON file:
    argv     what to run
    env      its whole environment
    cgroups  the absolute paths of the machine's control groups
    overlay  null, or {"lower": [newest, …, oldest], "upper", "work", "root"}
    parent   true: become the command, and end when the caller ends
             false: stay as its parent, and run it again when it asks for a reboot

The overlay is mounted in a mount namespace of this process's own. The host's mount table never
shows it and nothing needs unmounting: it is gone when the last process of the machine is.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
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
NS_GET_MNTNS_ID = 0x8008B705  # linux/nsfs.h; since Linux 6.12
REBOOT = 133  # systemd-nspawn --keep-unit leaves with this and lets its unit do the rest
NSPAWN_RUN = Path("/run/systemd/nspawn")

_libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, operation: str) -> None:
    """Raise what errno says if a call failed."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{operation}: {os.strerror(code)}")


def private_mounts() -> None:
    """Enter a mount namespace that the host does not see.

    It sees the host's unmounts.
    """
    check(_libc.unshare(CLONE_NEWNS), "unshare the mount namespace")
    # Slave, not private: a network namespace deleted on the host must go away here too.
    check(_libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "make / a slave mount")
    # What systemd-nspawn keeps for a machine while it runs would stay behind on the host.
    NSPAWN_RUN.mkdir(parents=True, exist_ok=True)
    place = os.fsencode(NSPAWN_RUN)
    check(_libc.mount(b"tmpfs", place, b"tmpfs", 0, b"mode=0755"), "mount systemd-nspawn's tmpfs")


def escape(path: str) -> str:
    """Quote what separates layers and options in overlay's option string."""
    for char in "\\:,":
        path = path.replace(char, "\\" + char)
    return path


def mount_overlay(lower: list[str], upper: str, work: str, root: str) -> None:
    """Mount the stack on `root`, without fsync.

    A local machine need not survive a host crash.
    """
    shutil.rmtree(Path(work) / "work" / "incompat", ignore_errors=True)  # of the last volatile run
    options = (
        f"lowerdir={':'.join(escape(layer) for layer in lower)},"
        f"upperdir={escape(upper)},workdir={escape(work)},index=off,xino=off,volatile"
    )
    check(
        _libc.mount(b"overlay", os.fsencode(root), b"overlay", 0, os.fsencode(options)),
        "mount the machine's overlay",
    )


def join(groups: list[str], part: str) -> None:
    """Move this process to a part of each group.

    cgroup v2 allows processes in the leaves only.
    """
    for group in groups:
        leaf = Path(group) / part
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))


def new_namespace_id(cpu: int) -> int:
    """Return the id of a new mount namespace on this CPU.

    0 where Linux does not tell it.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setaffinity(0, {cpu})
            check(_libc.unshare(CLONE_NEWNS), "unshare the mount namespace")
            value = array.array("Q", [0])
            with Path("/proc/self/ns/mnt").open("rb") as namespace:
                fcntl.ioctl(namespace, NS_GET_MNTNS_ID, value)
            os.write(writer, str(value[0]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    text = os.read(reader, 32)
    os.close(reader)
    return int(text or 0)


def start_on_first_cpu(argv: list[str], cpus: set[int]) -> list[str]:
    """Move to the CPU whose namespaces have the lowest ids.

    Linux 6.18 gives each CPU ids of its own. It refuses to keep a mount namespace with a lower id
    than the caller's (mnt_ns_loop in fs/namespace.c). In a machine that was made on another CPU, a
    part of all jobs could not start. Returns the command that gives the machine all CPUs again.
    """
    os.sched_setaffinity(0, cpus)
    os.sched_setaffinity(0, {min(cpus, key=new_namespace_id)})
    return [argv[0], f"--cpu-affinity={','.join(map(str, sorted(cpus)))}", *argv[1:]]


def run_once(argv: list[str], env: dict[str, str], groups: list[str]) -> int:
    """Run the command in its own group; return its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            join(groups, "machine")
            os.execvpe(argv[0], argv, env)  # noqa: S606 - argv, no shell
        finally:
            os._exit(127)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Join, mount, become."""
    os.chdir("/")
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    if plan["parent"]:
        check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tie to the parent")
    join(plan["cgroups"], "machine" if plan["parent"] else "launcher")
    argv, cpus = plan["argv"], os.sched_getaffinity(0)
    if not plan["parent"]:
        argv = start_on_first_cpu(plan["argv"], cpus)
    private_mounts()
    if plan["overlay"]:
        mount_overlay(**plan["overlay"])
    if plan["parent"]:
        os.execvpe(plan["argv"][0], plan["argv"], plan["env"])  # noqa: S606 - argv, no shell
    while (code := run_once(argv, plan["env"], plan["cgroups"])) == REBOOT:
        argv = start_on_first_cpu(plan["argv"], cpus)
    sys.exit(1 if code < 0 else code)


if __name__ == "__main__":
    main()
