"""Sessions of a role that the instance's own role may assume."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud.client import call
from slurmplugins.model.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmplugins.system.clock import Clock

SESSION_SECONDS: Final = 3600
"""The longest session of a role that was reached from a role's session (AssumeRole, STS API)."""
MAX_SESSION_NAME: Final = 64
_UNSAFE: Final = re.compile(r"[^\w+=,.@-]", re.ASCII)


class AssumedRole:
    """A role, and an STS client that is made once."""

    def __init__(self, role_arn: str, connect: Callable[[], Any], clock: Clock) -> None:
        """Take a function that returns an STS client; it is called once."""
        self._role_arn = role_arn
        self._connect = connect
        self._clock = clock
        self._client: Any = None
        self._lock = threading.Lock()

    def connect(self) -> None:
        """Make the client before it is needed.

        Raises CloudError.
        """
        call(self._clock, "sts", self._connected)

    def credentials(self, session_name: str, tags: Mapping[str, str] | None = None) -> Credentials:
        """Return the credentials of a new session. Raises CloudError.

        CloudTrail and refusals name the session. Characters that STS does not take become "-".
        """
        more = (
            {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]} if tags else {}
        )

        def assume() -> Credentials:
            answer = self._connected().assume_role(
                RoleArn=self._role_arn,
                RoleSessionName=_UNSAFE.sub("-", session_name)[:MAX_SESSION_NAME],
                DurationSeconds=SESSION_SECONDS,
                **more,
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
