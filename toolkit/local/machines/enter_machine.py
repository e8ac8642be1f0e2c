"""Become a machine: a script of its own, so that it starts in 30 ms and imports nothing of ours.

Called as `python -I -S enter_machine.py PLAN`, with the path of a JSON file:
    argv     what to run
    env      its whole environment
    cgroups  the absolute paths of the machine's control groups
    overlay  null, or {"lower": [newest, …, oldest], "upper", "work", "root"}
    parent   true: become the command, and end when the caller ends
             false: stay as its parent, and run it again when it asks for a reboot

As a parent it makes a file beside the plan, PLAN with READY for `.json`, when jobs may begin.

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
import time
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000  # the cheapest namespace: 3 µs
MS_REC = 0x4000
MS_SLAVE = 1 << 19
PR_SET_PDEATHSIG = 1
NS_GET_MNTNS_ID = 0x8008B705  # linux/nsfs.h; since Linux 6.12
IDS_OF_CPU = 4096  # the length of a range: COOKIE_LOCAL_BATCH in linux/cookie.h
TICK = 0.02  # seconds between two looks for the machine's PID 1
REBOOT = 133  # systemd-nspawn --keep-unit leaves with this and lets its unit do the rest
READY = ".ready"
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


def mount_namespace_id(process: int | str) -> int:
    """Return the id of a process's mount namespace.

    0 where Linux does not tell it.
    """
    value = array.array("Q", [0])
    try:
        with Path(f"/proc/{process}/ns/mnt").open("rb") as namespace:
            fcntl.ioctl(namespace, NS_GET_MNTNS_ID, value)
    except OSError:
        return 0
    return value[0]


def use_up_ids(cpu: int, limit: int) -> None:
    """Use up a CPU's namespace ids up to the limit.

    The process is bound to the CPU afterwards.
    """
    os.sched_setaffinity(0, {cpu})
    check(_libc.unshare(CLONE_NEWNS), "unshare the mount namespace")
    while 0 < (last := mount_namespace_id("self")) <= limit:
        for _ in range(IDS_OF_CPU - last % IDS_OF_CPU):
            check(_libc.unshare(CLONE_NEWUTS), "unshare the UTS namespace")
        check(_libc.unshare(CLONE_NEWNS), "unshare the mount namespace")


def give_all_cpus_higher_ids(limit: int) -> None:
    """Let later namespaces of each CPU have ids above the limit.

    Linux 6.18 gives each CPU a range of ids, and the next higher range when it is used up. It
    refuses to keep a mount namespace with a lower id than the caller's (mnt_ns_loop in
    fs/namespace.c). A job's namespace is younger than its machine's, but it may be made on a CPU
    with a lower range. Then the job could not start.
    """
    pids = []
    for cpu in os.sched_getaffinity(0):
        if (pid := os.fork()) == 0:
            try:
                use_up_ids(cpu, limit)
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


def init_of(launcher: int) -> int | None:
    """Return the child of systemd-nspawn that is the machine's PID 1."""
    try:
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        for child in map(int, children):
            status = Path(f"/proc/{child}/status").read_text().splitlines()
            (numbers,) = [line.split()[1:] for line in status if line.startswith("NSpid:")]
            if len(numbers) > 1 and numbers[-1] == "1":
                return child
    except OSError:  # one of them ended while we looked
        return None
    return None


def run_once(argv: list[str], env: dict[str, str], groups: list[str], ready: Path) -> int:
    """Run the command in its own group; return its exit code.

    Makes the file `ready` when the machine has begun.
    """
    pid = os.fork()
    if pid == 0:
        try:
            join(groups, "machine")
            os.execvpe(argv[0], argv, env)  # noqa: S606 - argv, no shell
        finally:
            os._exit(127)
    while (init := init_of(pid)) is None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(TICK)
    give_all_cpus_higher_ids(mount_namespace_id(init))
    ready.touch()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Join, mount, become."""
    os.chdir("/")
    path = Path(sys.argv[1])
    plan = json.loads(path.read_bytes())
    if plan["parent"]:
        check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "tie to the parent")
    join(plan["cgroups"], "machine" if plan["parent"] else "launcher")
    private_mounts()
    if plan["overlay"]:
        mount_overlay(**plan["overlay"])
    if plan["parent"]:
        os.execvpe(plan["argv"][0], plan["argv"], plan["env"])  # noqa: S606 - argv, no shell
    command = plan["argv"], plan["env"], plan["cgroups"], path.with_suffix(READY)
    while (code := run_once(*command)) == REBOOT:
        pass
    sys.exit(1 if code < 0 else code)


if __name__ == "__main__":
    main()
