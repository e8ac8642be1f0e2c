"""Sessions of the job role: S3 for one job, tagged with whose job it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmplugins.cloud.assumed_role import AssumedRole

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.model.credentials import Credentials
    from slurmplugins.system.clock import Clock


class JobRole:
    """The role of all jobs. Each session has the tags user, account and job."""

    def __init__(self, role_arn: str, connect: Callable[[], Any], clock: Clock) -> None:
        """Take a function that returns an STS client; it is called once."""
        self._role = AssumedRole(role_arn, connect, clock)

    def connect(self) -> None:
        """Make the client before the first job needs it.

        Raises CloudError.
        """
        self._role.connect()

    def credentials(self, *, user: str, account: str, job: int) -> Credentials:
        """Return new credentials for a job. Raises CloudError."""
        tags = {"user": user, "account": account, "job": str(job)}
        return self._role.credentials(f"{job}-{user}", tags)
