"""Every error of the runtime, in one tree.

    EngineError
    ├── ConfigError           burst.json or node.json can't be used
    ├── BadName               a node name or hostlist is not one of ours
    ├── StateError            journal, lock or spool can't be read or written
    ├── SlurmError
    │   ├── SlurmUnreachable  slurmctld did not answer
    │   └── SlurmRefused      slurmctld answered no
    ├── MetadataError         the instance metadata service did not answer
    ├── Late                  too late for nodes that Slurm gives up on
    ├── TrackingError         MLflow did not answer, or refused
    ├── BootError             this machine can't become a node
    └── CloudError
        ├── Capacity          none to be had there now: try elsewhere
        ├── PriceTooLow       the spot price is above our limit: try elsewhere
        ├── Quota             the account may not have more
        ├── Throttled         too many requests: wait, then repeat
        ├── Denied            permissions: a person must give them
        │   └── Unauthenticated  EC2 can't tell who asks: a wrong clock, keys that were renewed
        │       └── NoCredentials none were found to ask with: the metadata service may be slow
        ├── InvalidRequest    the request can never work
        ├── NotFound          what was named does not exist
        ├── NotAllEnded       some instances may not be ended; the others have
        ├── Ended             what the same call started before has ended since
        ├── NotEnded          nothing is started beside what should end, and lives
        ├── CloudUnreachable  no answer: the call may or may not have happened
        └── UnknownCloudError a code that says nothing of what to do next

Each class has a stable `slug`, which is what people and reports see, and says whether repeating
the same call may help (`retryable`), whether only a person can mend it (`holds`), and whether it
tells what became of the same call's earlier tries (`settles`). Errors from boto3 are translated
once, in `cloud.session`.
"""

# ruff: noqa: N818 - the names say what happened; "Error" twice over would say less
from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN: Final = 20
"""Instances that a message names."""


class EngineError(Exception):
    """Anything the runtime can report. `nodes` are the node names concerned, if any."""

    slug: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.nodes = nodes


class ConfigError(EngineError):
    """Carries every problem found, not only the first."""

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
    """An answer, or the lack of one, from the cloud. `code` is the cloud's own word. `started`: the
    instances that a launch has started all the same, ended since or not.
    """

    slug = "cloud"
    holds: ClassVar[bool] = False
    """Waiting does not mend it: a person must act."""
    settles: ClassVar[bool] = False
    """EC2 judged the request itself, token and all: nothing runs that it started before. What comes
    before that judgement, or in place of it, leaves an earlier call without an answer in doubt.
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
    """It heals by itself as a rule: the clock is set, and the role's keys are renewed."""

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
    """Carry the instances that `over` has ended, and EC2's word on each that it `kept`."""

    slug = "some-not-ended"

    def __init__(self, over: frozenset[str], kept: Mapping[str, CloudError]) -> None:
        error = next(iter(kept.values()))
        text = f"{', '.join(list(kept)[:SHOWN])} ({len(kept)} in all): {error.message}"
        super().__init__(text, code=error.code)
        self.over = over
        self.kept = kept


class UnknownCloudError(CloudError):
    slug = "cloud-error"
