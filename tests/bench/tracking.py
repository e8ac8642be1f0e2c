"""Requests a second to MLflow as the head runs it, and to MLflow's own server without owners.

Both servers run over SQLite, and take the same requests in turns. A job's connection comes from a
node, which the head asks whose it is. Therefore an ident server is at the other end.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from slurmplugins.node.ident import PORT, IdentServer
from tests.contract.owners.servers import ADA, acting_as, free_port, serving, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = "127.0.0.99"
ROUNDS, REQUESTS = 5, 30
MEMORY = "/dev/shm"
"""The folder of the databases: their fsync would hide what a request costs."""
SIZES = {"1 metric": 1, "100 metrics": 100}
OURS, PLAIN = "toolkit", "mlflow server"


def rates() -> dict[str, dict[str, float]]:
    """Return requests a second by kind of request and server.

    They are medians of rounds in turns.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        ports = {
            OURS: stack.enter_context(_ours(folder)),
            PLAIN: stack.enter_context(_plain(folder)),
        }
        stack.enter_context(_ident())
        runs = {server: _new_run(port) for server, port in ports.items()}
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(ROUNDS):
            for name, size in SIZES.items():
                for kept in (True, False):
                    kind = f"log-batch of {name}, {'one connection' if kept else 'one each'}"
                    for server, port in ports.items():
                        rate = _rate(port, runs[server], size, kept=kept)
                        found.setdefault(kind, {}).setdefault(server, []).append(rate)
    return {
        kind: {server: statistics.median(taken) for server, taken in by_server.items()}
        for kind, by_server in found.items()
    }


def _rate(port: int, run_id: str, size: int, *, kept: bool) -> float:
    metrics = [{"key": f"m{n}", "value": 0.5, "timestamp": 1, "step": 0} for n in range(size)]
    body = {"run_id": run_id, "metrics": metrics}
    connection = _connect(port)
    began = time.perf_counter()
    for step in range(REQUESTS):
        for metric in metrics:
            metric["step"] = step
        if not kept:
            connection.close()
            connection = _connect(port)
        _send(connection, "runs/log-batch", body)
    took = time.perf_counter() - began
    connection.close()
    return REQUESTS / took


def _new_run(port: int) -> str:
    connection = _connect(port)
    content = _send(connection, "runs/create", {"experiment_id": "0"})
    connection.close()
    return str(content["run"]["info"]["run_id"])


def _connect(port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, source_address=(NODE, 0))
    with acting_as(ADA):
        connection.connect()
    return connection


def _send(connection: http.client.HTTPConnection, path: str, body: object) -> dict:
    headers = {"Content-Type": "application/json"}
    connection.request("POST", f"/api/2.0/mlflow/{path}", json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != http.client.OK:
        raise SystemExit(content.decode())
    return dict(json.loads(content))


@contextmanager
def _ours(folder: Path) -> Iterator[int]:
    port = free_port()
    arguments = (
        *("--port", port, "--allowed-hosts", "127.0.0.1:*"),
        *("--backend-store-uri", f"sqlite:///{folder}/ours.db"),
        *("--artifacts-destination", folder / "artifacts"),
    )
    with serving("mlflow", *arguments, port=port, log=folder / "ours.log"):
        yield port


@contextmanager
def _plain(folder: Path) -> Iterator[int]:
    port, log = free_port(), folder / "plain.log"
    argv = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "0.0.0.0"),
        *("--port", str(port), "--allowed-hosts", "127.0.0.1:*", "--serve-artifacts"),
        *("--backend-store-uri", f"sqlite:///{folder}/plain.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(argv, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for(port, process, log)
        yield port
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _ident() -> Iterator[None]:
    """Answer at the node's address, from this process."""
    server = IdentServer(NODE, PORT, head="127.0.0.1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
