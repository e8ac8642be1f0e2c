"""Sessions of the job role: S3 for one job, tagged with whose job it is."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud.client import call
from slurmplugins.model.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.system.clock import Clock

SESSION_SECONDS: Final = 3600
"""The longest session of a role that was reached from a role's session (AssumeRole, STS API)."""
MAX_SESSION_NAME: Final = 64
_UNSAFE: Final = re.compile(r"[^\w+=,.@-]", re.ASCII)


class JobRole:
    """The role of all jobs. Each session has the tags user, account and job."""

    def __init__(self, role_arn: str, connect: Callable[[], Any], clock: Clock) -> None:
        """Take a function that returns an STS client; it is called once."""
        self._role_arn = role_arn
        self._connect = connect
        self._clock = clock
        self._client: Any = None
        self._lock = threading.Lock()

    def connect(self) -> None:
        """Make the client before the first job needs it.

        Raises CloudError.
        """
        call(self._clock, "sts", self._connected)

    def credentials(self, *, user: str, account: str, job: int) -> Credentials:
        """Return new credentials for a job. Raises CloudError."""
        tags = {"user": user, "account": account, "job": str(job)}

        def assume() -> Credentials:
            answer = self._connected().assume_role(
                RoleArn=self._role_arn,
                # CloudTrail and refusals name it.
                RoleSessionName=_UNSAFE.sub("-", f"{job}-{user}")[:MAX_SESSION_NAME],
                DurationSeconds=SESSION_SECONDS,
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )
            given = answer["Credentials"]
            return Credentials(
                str(given["AccessKeyId"]),
                str(given["SecretAccessKey"]),
                str(given["SessionToken"]),
                given["Expiration"].timestamp(),
            )

        return call(self._clock, "assume_role", assume)

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client
