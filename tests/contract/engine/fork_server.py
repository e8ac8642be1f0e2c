"""Programs as forks of a Python that has loaded botocore.

Loading botocore is most of a program's time. From its `main` on, each program is a process of its
own, and ends as any Python does. test_entry_points.py tests the imports of a program.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[3]
PARENT = """
import functools, gc, json, os, signal, socket, sys
import botocore.loaders
loader = botocore.loaders.JSONFileLoader
read = functools.cache(loader().load_file)
loader.load_file = lambda self, path: read(path)
import botocore.session
sys.path.insert(0, sys.argv[2])
from slurmplugins import reconcile, resume, resume_fail, suspend
for service in ("ec2", "s3"):
    botocore.session.get_session().create_client(
        service, "us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
gc.collect()
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
near = socket.socket(socket.AF_UNIX)
near.bind(sys.argv[1])
near.listen(64)
near.settimeout(5)
tests = os.getppid()
print("ready", flush=True)
while True:
    try:
        call, _ = near.accept()
    except TimeoutError:  # killed tests can't end this process
        if os.getppid() != tests:
            os._exit(0)
        continue
    if os.fork():
        call.close()
        continue
    near.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = json.loads(call.makefile("rb").readline())
    child = os.fork()
    if child:
        call.sendall(b"%d\\n" % child)
        _, status = os.waitpid(child, 0)
        call.sendall(b"%d\\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    call.close()
    errors = os.open(asked["errors"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(errors, 2)
    os.close(errors)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["-c", *asked["argv"]]
    break
exec(compile(asked["code"], "<program>", "exec"), {"__name__": "__main__"})
"""


class Program:
    """A started program, with the part of Popen that tests need."""

    def __init__(self, near: socket.socket) -> None:
        self._near, self._said = near, near.makefile("rb")
        self.pid = int(self._said.readline())
        self._returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status.

        Raises TimeoutExpired.
        """
        if self._returncode is None:
            self._near.settimeout(timeout)
            try:
                self._returncode = int(self._said.readline())
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"program {self.pid}", timeout or 0.0) from None
            self._said.close()
            self._near.close()
        return self._returncode

    def kill(self) -> None:
        """Send SIGKILL, unless the exit status is known."""
        if self._returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def start(code: str, argv: Sequence[str], environment: Mapping[str, str], errors: Path) -> Program:
    """Run the code as `python -I -c` does.

    Its standard error is appended to a file.
    """
    near = socket.socket(socket.AF_UNIX)
    near.connect(_parent())
    asked = {"code": code, "argv": argv, "environment": environment, "errors": str(errors)}
    near.sendall(json.dumps(asked).encode() + b"\n")
    return Program(near)


@functools.cache
def _parent() -> str:
    """Return the socket of this test process's own server."""
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / "socket")
    parent = subprocess.Popen(
        [sys.executable, "-I", "-c", PARENT, path, str(ROOT)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={"AWS_EC2_METADATA_DISABLED": "true"},
    )

    def end() -> None:
        parent.kill()
        parent.wait()
        folder.cleanup()

    atexit.register(end)
    assert parent.stdout is not None
    with parent.stdout as said:
        assert said.readline() == b"ready\n"
    return path
