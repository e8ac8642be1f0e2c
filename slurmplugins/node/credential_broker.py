"""Hand out a job's AWS credentials to whoever has the job's token.

The SDKs ask by HTTP on loopback (`broker_server`), because the TaskProlog sets their own variables
for container credentials. The answer has the credentials of the job role, in a session that is
tagged with the job's user, account and id. A job never sees the credentials of the instance's role.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError
from slurmplugins.node.job_tokens import identify
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.model.credentials import Credentials
    from slurmplugins.node.job_tokens import JobIdentity
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

PATH: Final = "/credentials"

RENEW_SECONDS: Final = 1800.0
"""Life that credentials have at least when they are handed out, while AWS answers.

A role that was reached from a role's session lasts an hour (STS API reference, AssumeRole). SDKs
ask anew from 15 minutes before the end, so a shorter rest would make them ask all the time.
"""
SPARE_SECONDS: Final = 300.0
"""Credentials with at least this life are handed out while a call for new ones is running."""
WAIT_SECONDS: Final = 5.0
"""Longest wait for the call of another request. SDKs hang up sooner: botocore after 2 s."""
FAILURE_SECONDS: Final = 5.0
"""Pause after a failed call, in which its error is the answer to all requests."""

OK, FORBIDDEN, NOT_FOUND, BAD_GATEWAY = 200, 403, 404, 502
REFUSED: Final = "no job on this node has this token; the variables are set inside a job alone"
NO_ANSWER_YET: Final = "AWS has not answered yet; ask again"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer by HTTP: always JSON."""

    status: int
    body: dict[str, str]


@dataclass(slots=True)
class _Slot:
    """The credentials of one job, or why there are none. One request at a time renews them."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    is_renewing: bool = False
    credentials: Credentials | None = None
    failure: str = ""
    failed_at: float = 0.0

    def seconds_left(self, now: float) -> float:
        return 0.0 if self.credentials is None else self.credentials.expires - now

    def begin_renewal(self, now: float) -> bool:
        """Return whether the caller must renew.

        It must if no other request does, and it is time.
        """
        is_pause = bool(self.failure) and 0 <= now - self.failed_at < FAILURE_SECONDS
        if self.is_renewing or is_pause or self.seconds_left(now) >= RENEW_SECONDS:
            return False
        self.is_renewing = True
        return True

    def end_renewal(self, credentials: Credentials | None, failure: str, now: float) -> None:
        """Keep the result of a call.

        Old credentials stay when there are no new ones.
        """
        self.is_renewing = False
        self.credentials = credentials or self.credentials
        self.failure, self.failed_at = failure, now
        self.changed.notify_all()


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
        with slot.changed:
            is_renewer = slot.begin_renewal(self._clock.now())
        if is_renewer:
            self._renew(identity, slot)
        return self._current(slot)

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

    def _current(self, slot: _Slot) -> Answer:
        """Return the job's credentials.

        Waits for a running call only if the job has none that last, and for WAIT_SECONDS at most.
        """

        def is_ready() -> bool:
            return not slot.is_renewing or slot.seconds_left(self._clock.now()) >= SPARE_SECONDS

        with slot.changed:
            slot.changed.wait_for(is_ready, WAIT_SECONDS)
            if slot.credentials is None or slot.seconds_left(self._clock.now()) <= 0:
                failure = slot.failure or NO_ANSWER_YET
                return _error(BAD_GATEWAY, "CredentialsUnavailable", failure)
            return Answer(OK, _document(slot.credentials))

    def _renew(self, identity: JobIdentity, slot: _Slot) -> None:
        """Ask AWS for new credentials.

        The call may take until its time limit.
        """
        credentials, failure = None, "the broker failed"
        try:
            credentials, failure = self._assume_role(identity), ""
            self._log.info(
                LogEvent.CREDENTIALS_ISSUED,
                job=identity.job,
                user=identity.user,
                account=identity.account,
            )
        except CloudError as error:
            failure = f"AWS gave no credentials: {error.message}"
            self._log.failure(
                LogEvent.CREDENTIALS_NOT_ISSUED, job=identity.job, message=error.message
            )
        finally:
            with slot.changed:
                slot.end_renewal(credentials, failure, self._clock.now())


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
