"""Hand out a job's AWS credentials to whoever has the job's token.

The SDKs ask by HTTP on loopback, because the TaskProlog sets their own variables for container
credentials. The answer has the credentials of the job role, in a session that is tagged with the
job's user, account and id. A job never sees the credentials of the instance's role.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import CloudError
from slurmplugins.node.job_tokens import identify
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.model.credentials import Credentials
    from slurmplugins.node.job_tokens import JobIdentity
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

ADDRESS: Final = "127.0.0.1"
PORT: Final = 817
"""Below 1024: while the broker is down, no user can take its port and collect tokens."""
PATH: Final = "/credentials"

RENEW_SECONDS: Final = 1800.0
"""Life that credentials have at least when they are handed out.

A role that was reached from a role's session lasts an hour (STS API reference, AssumeRole). SDKs
ask anew from 15 minutes before the end, so a shorter rest would make them ask all the time.
"""
FAILURE_SECONDS: Final = 5.0
"""Seconds for which a refusal of AWS is repeated without a new call."""
CONNECTIONS: Final = 64
SOCKET_SECONDS: Final = 5.0

OK, FORBIDDEN, NOT_FOUND, BAD_GATEWAY = 200, 403, 404, 502
REFUSED: Final = "no job on this node has this token; the variables are set inside a job alone"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer by HTTP: always JSON."""

    status: int
    body: dict[str, str]


@dataclass(slots=True)
class _Slot:
    """The credentials of one job, or why there are none. The lock makes one call serve all."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    credentials: Credentials | None = None
    failure: str = ""
    failed_at: float = 0.0


class CredentialBroker:
    """The broker of one node. Its threads share it."""

    def __init__(
        self,
        tokens: Path,
        assume_role: Callable[[JobIdentity], Credentials],
        clock: Clock,
        log: Log,
    ) -> None:
        self._tokens = tokens
        self._assume_role = assume_role
        self._clock = clock
        self._log = log
        self._slots: dict[JobIdentity, _Slot] = {}
        self._lock = threading.Lock()

    def answer(self, path: str, token: str) -> Answer:
        """Return the answer to one request.

        The token is compared at each request: after the Epilog there are no more credentials.
        """
        if path != PATH:
            return _error(NOT_FOUND, "NotFound", f"ask for {PATH}")
        identity = identify(self._tokens, token)
        if identity is None:
            self._log.warning(LogEvent.CREDENTIALS_REFUSED, why="wrong token")
            return _error(FORBIDDEN, "AccessDenied", REFUSED)
        slot = self._slot(identity)
        with slot.lock:
            self._renew(identity, slot)
            if slot.credentials is None:
                return _error(BAD_GATEWAY, "CredentialsUnavailable", slot.failure)
            return Answer(OK, _document(slot.credentials))

    def _slot(self, identity: JobIdentity) -> _Slot:
        with self._lock:
            if identity not in self._slots:
                self._slots = {
                    known: slot
                    for known, slot in self._slots.items()
                    if (self._tokens / str(known.job)).exists()
                }
                self._slots[identity] = _Slot()
            return self._slots[identity]

    def _renew(self, identity: JobIdentity, slot: _Slot) -> None:
        """Get new credentials when the old ones are used up by half."""
        now = self._clock.now()
        if slot.credentials is not None and slot.credentials.expires - now >= RENEW_SECONDS:
            return
        if slot.failure and 0 <= now - slot.failed_at < FAILURE_SECONDS:
            return
        try:
            slot.credentials, slot.failure = self._assume_role(identity), ""
        except CloudError as error:
            slot.failure, slot.failed_at = f"AWS gave no credentials: {error.message}", now
            if slot.credentials is not None and slot.credentials.expires <= now:
                slot.credentials = None
            self._log.failure(
                LogEvent.CREDENTIALS_NOT_ISSUED, job=identity.job, message=error.message
            )
            return
        self._log.info(
            LogEvent.CREDENTIALS_ISSUED,
            job=identity.job,
            user=identity.user,
            account=identity.account,
        )


class BrokerServer(ThreadingHTTPServer):
    """The HTTP server of a broker, for a bounded number of connections at once."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, broker: CredentialBroker, port: int = PORT) -> None:
        """Listen on loopback. Raises OSError."""
        self.broker = broker
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__((ADDRESS, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread.

        Closes it when too many are open.
        """
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket.socket | Any, client_address: Any) -> None:
        """Print no traceback.

        A client that hangs up is no fault of ours.
        """


class _Handler(BaseHTTPRequestHandler):
    server: BrokerServer
    timeout = SOCKET_SECONDS
    server_version = "slurm-toolkit"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self.server.broker.answer(self.path, self.headers.get("Authorization", ""))
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Write no line for each request: the broker logs what it decides."""


def _document(credentials: Credentials) -> dict[str, str]:
    """Return the credentials as the SDKs read them."""
    expires = datetime.fromtimestamp(credentials.expires, UTC)
    return {
        "AccessKeyId": credentials.key_id,
        "SecretAccessKey": credentials.secret,
        "Token": credentials.token,
        "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _error(status: int, code: str, message: str) -> Answer:
    return Answer(status, {"code": code, "message": message})
