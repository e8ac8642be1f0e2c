"""Training scripts as processes forked from one that has imported torch.

fork_server.py SOCKET

The server answers fake_torchrun.py until its standard input ends.

A script runs in the caller's environment and folder, with the caller's output, once for each rank.
When the caller ends, the ranks are killed. The first rank that fails ends the others.
"""

import ast
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import forked_attempt  # beside this script


def import_what_it_imports(script: Path) -> None:
    for line in ast.parse(script.read_bytes()).body:
        names = [name.name for name in line.names] if isinstance(line, ast.Import) else []
        if isinstance(line, ast.ImportFrom) and line.module:
            names = [line.module]
        for name in names:
            with contextlib.suppress(ImportError):  # the rank reports the error itself
                module = importlib.import_module(name)
                if isinstance(line, ast.ImportFrom):
                    for one in line.names:  # toolkit.training loads each name on first use
                        getattr(module, one.name, None)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Take over the caller's environment, folder and output."""
    with Path(os.devnull).open() as nothing:
        for here, there in enumerate([nothing.fileno(), *streams]):
            os.dup2(there, here)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ |= request["environment"]
    sys.path[0] = str(Path(request["argv"][0]).resolve().parent)


def together(asker: socket.socket, ranks: dict[int, int]) -> int:
    """Wait for all ranks by their descriptors; return their exit code.

    The code is 1 if a rank fails, as torchrun's is.
    """
    failed = 0
    while ranks:
        ready, _, _ = select.select([asker, *ranks], [], [])
        for one in ready:
            if one is asker:  # the caller was killed
                for rank in ranks.values():
                    os.kill(rank, signal.SIGKILL)
                return 1
            _, status = os.waitpid(ranks.pop(one), 0)
            if status and not failed:
                failed = 1
                for rank in ranks.values():
                    os.kill(rank, signal.SIGTERM)
    return failed


def serve(asker: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
    become(request, streams)
    ranks = [forked_attempt.start(request["argv"], more) for more in request["ranks"]]
    code = together(asker, {os.pidfd_open(rank): rank for rank in ranks})
    asker.sendall(bytes([code]))


def received(asker: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, streams, _, _ = socket.recv_fds(asker, 8, 2)
    with asker.makefile("rb") as stream:
        return json.loads(stream.read(int.from_bytes(size))), streams


def main() -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen()
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            with contextlib.suppress(ChildProcessError):  # no child is left
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in ready:
                os._exit(0)  # a normal exit would take seconds to unload the modules
            asker, _ = listening.accept()
            try:
                request, streams = received(asker)
            except ValueError:  # the caller was killed before the end of its request
                continue
            import_what_it_imports(Path(request["folder"], request["argv"][0]))
            if os.fork() == 0:
                try:
                    serve(asker, request, streams)
                finally:
                    os._exit(0)
            for stream in streams:
                os.close(stream)
            asker.close()


if __name__ == "__main__":
    main()
