"""The head's servers for runs and sweeps, with callers of several uids."""

import ctypes
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
REPO = HERE.parents[2]
ADA, BEN, ROOT, SYSTEM = 2001, 2002, 0, 1
SYSTEM_NAME = "daemon"  # a system user that every host has, in the place of slurm
START_SECONDS = 600  # as long as a busy host takes
PR_SET_SECUREBITS, NO_SETUID_FIXUP = 28, 1 << 2  # linux/prctl.h, linux/securebits.h
SEARCH_PATH = os.pathsep.join(filter(None, (str(REPO), os.environ.get("PYTHONPATH"))))
ENVIRONMENT = {"PYTHONPATH": SEARCH_PATH, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@contextmanager
def acting_as(uid):
    """Make the sockets of this block that user's.

    Root's capabilities stay, for Python reads modules where that user can't.
    """
    keeps = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0)
    assert keeps == 0, "callers of several users need root, as the local cloud does"
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(role, *arguments, port, log, names=os.devnull):
    """Run a role's program as the head does, until it answers.

    Serve_with_users.py says what it writes into `names`.
    """
    program = REPO / "ansible/roles" / role / "files/serve.py"
    argv = [sys.executable, str(HERE / "serve_with_users.py"), str(program), *map(str, arguments)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            env=os.environ | ENVIRONMENT | {"NAMES": str(names)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(port, process, log)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def wait_for(port, process, log):
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return
