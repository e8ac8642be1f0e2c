"""Start training scripts as processes of their own, forked from one that imported torch once.

fork_server.py SOCKET        serves until its standard input ends; fake_torchrun.py asks it

A script runs with the asker's environment, folder and output, as often as it wants ranks. The
asker's end is the ranks' end, without a word. The first rank that fails ends the others.
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

import forked_attempt  # its folder comes first on the path


def import_what_it_imports(script: Path) -> None:
    for line in ast.parse(script.read_bytes()).body:
        names = [name.name for name in line.names] if isinstance(line, ast.Import) else []
        if isinstance(line, ast.ImportFrom) and line.module:
            names = [line.module]
        for name in names:
            with contextlib.suppress(ImportError):  # the rank will say so
                module = importlib.import_module(name)
                if isinstance(line, ast.ImportFrom):
                    for one in line.names:  # toolkit.training loads each on first use
                        getattr(module, one.name, None)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Take the asker's place: its environment, its folder, its output."""
    with Path(os.devnull).open() as nothing:
        for here, there in enumerate([nothing.fileno(), *streams]):
            os.dup2(there, here)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ |= request["environment"]
    sys.path[0] = str(Path(request["argv"][0]).resolve().parent)


def together(asker: socket.socket, ranks: dict[int, int]) -> int:
    """Wait for all ranks, by their descriptors: 1 if one fails, as torchrun's own code is."""
    failed = 0
    while ranks:
        ready, _, _ = select.select([asker, *ranks], [], [])
        for one in ready:
            if one is asker:  # it was killed
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
            with contextlib.suppress(ChildProcessError):  # none is left
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in ready:
                os._exit(0)  # to take all those modules down takes seconds
            asker, _ = listening.accept()
            try:
                request, streams = received(asker)
            except ValueError:  # it was killed before it had said all
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
