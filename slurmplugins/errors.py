"""The errors of the engine, in one tree.

    EngineError
    ├── ConfigError           burst.json or node.json can't be used.
    ├── BadName               a node name or hostlist is not one of ours.
    ├── StateError            journal, lock or spool can't be read or written.
    ├── SlurmError
    │   ├── SlurmUnreachable  slurmctld did not answer.
    │   └── SlurmRefused      slurmctld refused.
    ├── MetadataError         the instance metadata service did not answer.
    ├── MetadataOpen          users can reach the instance metadata service.
    ├── TooLate               Slurm gives up on these nodes.
    ├── TrackingError         MLflow did not answer, or refused.
    ├── BootError             this instance can't become a node.
    ├── BackupError           a backup can't be taken, read or restored.
    └── CloudError
        ├── NoCapacity        EC2 has none there now: try elsewhere.
        ├── PriceTooLow       the spot price is above our limit: try elsewhere.
        ├── QuotaExceeded     the AWS account may not have more.
        ├── Throttled         too many requests: wait, then repeat.
        ├── Denied            permissions: a person must give them.
        │   └── Unauthenticated  EC2 rejects the keys: a wrong clock, or keys just renewed.
        │       └── NoCredentials no usable keys: the metadata service may be slow.
        ├── InvalidRequest    the request can never work.
        ├── NotFound          EC2 does not know an id or name in the request.
        ├── SomeNotTerminated EC2 refuses to terminate some instances; it terminated the others.
        ├── AlreadyTerminated the instances of an earlier, same call are terminated.
        ├── NotTerminated     no launch beside an instance that should be terminated, and lives.
        ├── CloudUnreachable  no answer: the call may or may not have happened.
        └── UnknownCloudError a code that does not tell the next step.

Each class has a stable `reason_code`, which people and reports see. Three flags tell the caller the
next step:

- `retryable`: repeating the same call may help.
- `holds_job`: only a person can mend it.
- `resolves_launch`: the error also tells the result of the same call's earlier tries.

Errors from botocore are translated once, in `cloud.client`.
"""

# ruff: noqa: N818 - the names tell the event; a second "Error" would tell less
from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_NAMED: Final = 20
"""The most instances that a message names."""


class EngineError(Exception):
    """An error that the engine can report."""

    reason_code: ClassVar[str] = "error"
    """A stable name for people, reports and tests."""
    retryable: ClassVar[bool] = False
    """Repeating the same call may help."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConfigError(EngineError):
    """Problems in a configuration file: all of them, not only the first."""

    reason_code = "config"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class BadName(EngineError):
    reason_code = "bad-name"


class StateError(EngineError):
    reason_code = "state"
    retryable = True


class SlurmError(EngineError):
    reason_code = "slurm"


class SlurmUnreachable(SlurmError):
    reason_code = "slurm-unreachable"
    retryable = True


class SlurmRefused(SlurmError):
    reason_code = "slurm-refused"


class MetadataError(EngineError):
    reason_code = "metadata"
    retryable = True


class MetadataOpen(EngineError):
    reason_code = "metadata-open"


class TooLate(EngineError):
    reason_code = "too-late"


class TrackingError(EngineError):
    reason_code = "tracking"
    retryable = True


class BootError(EngineError):
    reason_code = "boot"


class BackupError(EngineError):
    reason_code = "backup"


class CloudError(EngineError):
    """An error answer from AWS, or no answer.

    `code` is AWS's own code. `instances_started` counts instances that a failed launch started,
    also those that were terminated since.
    """

    reason_code = "cloud"
    holds_job: ClassVar[bool] = False
    """Waiting does not help: a person must act, and the job is held."""
    resolves_launch: ClassVar[bool] = False
    """EC2 judged the request itself, with its token: the request has no running instances.

    Without that judgement, an earlier call without an answer keeps its unknown outcome.
    """

    def __init__(self, message: str, *, code: str, instances_started: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.instances_started = instances_started


class NoCapacity(CloudError):
    reason_code = "no-capacity"
    resolves_launch = True


class PriceTooLow(CloudError):
    reason_code = "spot-price"
    resolves_launch = True


class QuotaExceeded(CloudError):
    reason_code = "quota"
    holds_job = True
    resolves_launch = True


class Throttled(CloudError):
    reason_code = "throttled"
    retryable = True


class Denied(CloudError):
    reason_code = "denied"
    holds_job = True


class Unauthenticated(Denied):
    """A rejected signature. It usually heals by itself: NTP sets the clock, EC2 renews the keys."""

    reason_code = "unauthenticated"
    holds_job = False


class NoCredentials(Unauthenticated):
    retryable = True


class InvalidRequest(CloudError):
    reason_code = "invalid-request"
    holds_job = True
    resolves_launch = True


class NotFound(CloudError):
    reason_code = "not-found"
    holds_job = True
    resolves_launch = True


class AlreadyTerminated(CloudError):
    reason_code = "ended-since"
    resolves_launch = True


class NotTerminated(CloudError):
    reason_code = "not-ended"


class CloudUnreachable(CloudError):
    reason_code = "cloud-unreachable"
    retryable = True


class SomeNotTerminated(CloudError):
    """Instances that EC2 refused to terminate.

    `terminated` holds the ids that were terminated, `refused` EC2's error for each refused id.
    """

    reason_code = "some-not-ended"

    def __init__(self, terminated: frozenset[str], refused: Mapping[str, CloudError]) -> None:
        error = next(iter(refused.values()))
        text = f"{', '.join(list(refused)[:MOST_NAMED])} ({len(refused)} in all): {error.message}"
        super().__init__(text, code=error.code)
        self.terminated = terminated
        self.refused = refused


class UnknownCloudError(CloudError):
    reason_code = "cloud-error"
