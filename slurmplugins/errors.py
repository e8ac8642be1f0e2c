"""The errors of the engine, in one tree.

    EngineError
    ├── ConfigError           burst.json or node.json can't be used.
    ├── BadName               a node name or hostlist is not one of ours.
    ├── StateError            journal, lock or spool can't be read or written.
    ├── SlurmError
    │   ├── SlurmUnreachable  slurmctld did not answer.
    │   └── SlurmRefused      slurmctld refused.
    ├── MetadataError         the instance metadata service did not answer.
    ├── Late                  too late: Slurm gives up on these nodes.
    ├── TrackingError         MLflow did not answer, or refused.
    ├── BootError             this instance can't become a node.
    └── CloudError
        ├── Capacity          EC2 has none there now: try elsewhere.
        ├── PriceTooLow       the spot price is above our limit: try elsewhere.
        ├── Quota             the account may not have more.
        ├── Throttled         too many requests: wait, then repeat.
        ├── Denied            permissions: a person must give them.
        │   └── Unauthenticated  EC2 rejects the keys: a wrong clock, or keys just renewed.
        │       └── NoCredentials no keys found: the metadata service may be slow.
        ├── InvalidRequest    the request can never work.
        ├── NotFound          EC2 does not know an id or name in the request.
        ├── NotAllEnded       EC2 refuses to terminate some instances; the others ended.
        ├── Ended             the instances of an earlier, same call have ended since.
        ├── NotEnded          no launch beside an instance that should end, and lives.
        ├── CloudUnreachable  no answer: the call may or may not have happened.
        └── UnknownCloudError a code that does not tell the next step.

Each class has a stable `slug`, which people and reports see. Three flags tell the caller the next
step:

- `retryable`: repeating the same call may help.
- `holds`: only a person can mend it.
- `settles`: the error also tells the result of the same call's earlier tries.

Errors from botocore are translated once, in `cloud.client`.
"""

# ruff: noqa: N818 - the names tell the event; a second "Error" would tell less
from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN: Final = 20
"""The most instances that a message names."""


class EngineError(Exception):
    """An error that the engine can report. `nodes` are the names of the affected nodes, if any."""

    slug: ClassVar[str] = "error"
    """A stable name for people, reports and tests."""
    retryable: ClassVar[bool] = False
    """Repeating the same call may help."""

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.nodes = nodes


class ConfigError(EngineError):
    """Problems in a configuration file: all of them, not only the first."""

    slug = "config"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class BadName(EngineError):
    slug = "bad-name"


class StateError(EngineError):
    slug = "state"
    retryable = True


class SlurmError(EngineError):
    slug = "slurm"


class SlurmUnreachable(SlurmError):
    slug = "slurm-unreachable"
    retryable = True


class SlurmRefused(SlurmError):
    slug = "slurm-refused"


class MetadataError(EngineError):
    slug = "metadata"
    retryable = True


class Late(EngineError):
    slug = "too-late"


class TrackingError(EngineError):
    slug = "tracking"
    retryable = True


class BootError(EngineError):
    slug = "boot"


class CloudError(EngineError):
    """An error answer from AWS, or no answer.

    `code` is AWS's own code. `started` counts instances that a failed launch started, also those
    that were terminated since.
    """

    slug = "cloud"
    holds: ClassVar[bool] = False
    """Waiting does not help: a person must act, and the job is held."""
    settles: ClassVar[bool] = False
    """EC2 judged the request itself, with its token: the request has no running instances.

    Without that judgement, an earlier call without an answer keeps its unknown outcome.
    """

    def __init__(
        self, message: str, *, code: str, nodes: tuple[str, ...] = (), started: int = 0
    ) -> None:
        super().__init__(message, nodes=nodes)
        self.code = code
        self.started = started


class Capacity(CloudError):
    slug = "no-capacity"
    settles = True


class PriceTooLow(CloudError):
    slug = "spot-price"
    settles = True


class Quota(CloudError):
    slug = "quota"
    holds = True
    settles = True


class Throttled(CloudError):
    slug = "throttled"
    retryable = True


class Denied(CloudError):
    slug = "denied"
    holds = True


class Unauthenticated(Denied):
    """A rejected signature. It usually heals by itself: NTP sets the clock, EC2 renews the keys."""

    slug = "unauthenticated"
    holds = False


class NoCredentials(Unauthenticated):
    retryable = True


class InvalidRequest(CloudError):
    slug = "invalid-request"
    holds = True
    settles = True


class NotFound(CloudError):
    slug = "not-found"
    holds = True
    settles = True


class Ended(CloudError):
    slug = "ended-since"
    settles = True


class NotEnded(CloudError):
    slug = "not-ended"


class CloudUnreachable(CloudError):
    slug = "cloud-unreachable"
    retryable = True


class NotAllEnded(CloudError):
    """Instances that EC2 refused to terminate.

    `over` holds the ids that were terminated, `kept` EC2's error for each refused id.
    """

    slug = "some-not-ended"

    def __init__(self, over: frozenset[str], kept: Mapping[str, CloudError]) -> None:
        error = next(iter(kept.values()))
        text = f"{', '.join(list(kept)[:SHOWN])} ({len(kept)} in all): {error.message}"
        super().__init__(text, code=error.code)
        self.over = over
        self.kept = kept


class UnknownCloudError(CloudError):
    slug = "cloud-error"
