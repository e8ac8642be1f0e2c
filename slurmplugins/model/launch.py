"""Launches for jobs: requests, the plan of one run, results. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.node import REASON_PREFIX
from slurmplugins.model.offering import Lifecycle, Offering

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.errors import CloudError
    from slurmplugins.model.instance import Assignment, Instance
    from slurmplugins.model.offering import Pool, Rung


IN_DOUBT: Final = "launch-in-doubt"

_OFFERING: Final = frozenset(item.name for item in fields(Offering))
_OF_THE_LINE: Final = frozenset({"at", "boot", "jobs", "kind", "run", "steady", "up"})


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A single EC2 call that launches instances for these nodes, in the order of the nodes."""

    attempt: str
    """The launch's id. The ClientToken is made from it."""
    cluster: str
    pool: str
    partition: str
    launch_template: str
    subnet: str
    """Empty where the launch template states the subnet."""
    offering: Offering
    nodes: tuple[NodeName, ...]
    others: tuple[Offering, ...] = ()
    """More offerings of the same lifecycle and zone. With them the call is CreateFleet."""
    least: int = 0
    """EC2 launches at least this many instances or none. 0 means all nodes."""

    @property
    def offerings(self) -> tuple[Offering, ...]:
        return (self.offering, *self.others)

    @property
    def at_least(self) -> int:
        return self.least or len(self.nodes)

    def to_record(self) -> dict[str, Any]:
        """Return the fields that a journal line holds.

        `attempt` and `nodes` are also fields of every other launch line.
        """
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> LaunchRequest:
        """Read a request from a journal line; ignore unknown fields.

        Raises KeyError, TypeError, ValueError or AttributeError for a line that `to_record` did
        not write.
        """
        words = ("attempt", "cluster", "pool", "partition", "launch_template", "subnet")
        if not all(isinstance(text, str) for text in (*record["nodes"], *map(record.get, words))):
            raise TypeError("not the names of a launch")
        return cls(
            attempt=record["attempt"],
            cluster=record["cluster"],
            pool=record["pool"],
            partition=record["partition"],
            launch_template=record["launch_template"],
            subnet=record["subnet"],
            offering=_offering(record["offering"]),
            nodes=tuple(map(NodeName, record["nodes"])),
            others=tuple(map(_offering, record["others"])),
            least=int(record["least"]),
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """EC2's error for one offering of a launch."""

    offering: Offering
    error: CloudError
    passed_on: bool = False
    """EC2 gave this error to another job a moment ago. EC2 was not called for this job."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The result of a launch."""

    machines: tuple[Instance, ...]
    """Instances of the request's first nodes, in the order of the nodes."""
    refusals: tuple[Refusal, ...] = ()
    """Offerings that EC2 refused before the launch succeeded."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Nodes that get no instance, with the reason."""

    job: int | None
    nodes: tuple[NodeName, ...]
    slug: str
    code: str = ""
    """EC2's error code. Empty when the failure did not come from EC2."""
    message: str = ""
    hold: bool = False
    """The job is to be held: waiting does not help, a person must act."""
    ended: tuple[NodeName, ...] = ()
    """Subset of `nodes` that had an instance, which is terminated now."""

    @property
    def reason(self) -> str:
        """Return the node's reason as Slurm shows it."""
        return f"{REASON_PREFIX} {self.slug}" + (f" ({self.code})" if self.code else "")


@dataclass(frozen=True, slots=True)
class PoolAsk:
    """Nodes of one pool that one job waits for."""

    pool: Pool
    nodes: tuple[NodeName, ...]
    ladder: tuple[Rung, ...] = ()
    """Groups of offerings, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class JobLaunch:
    """Instances to launch for one job, all or none."""

    job: int | None
    asks: tuple[PoolAsk, ...]
    nodes: tuple[NodeName, ...]
    """All nodes of the job's request, also nodes that already have an instance."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """The plan of one ResumeProgram run."""

    adopt: tuple[Assignment, ...] = ()
    """Instances that exist already and are used."""
    launches: tuple[JobLaunch, ...] = ()
    replace: tuple[Instance, ...] = ()
    """Instances that Slurm cannot use: launched before this request, or of another pool.
    They are terminated before the launch.
    """
    failures: tuple[Failure, ...] = ()
    busy: tuple[NodeName, ...] = ()
    """Nodes that another run is working on. This run leaves them alone."""
    asks: tuple[JobRequest, ...] = ()
    """All requests that the plan covers, also requests that get nothing."""
    unended: tuple[Instance, ...] = ()
    """Instances whose termination was decided and that still live. No instance is launched for
    their nodes.
    """
    filling: Mapping[str, frozenset[NodeName]] = field(default_factory=dict)
    """By quota: the nodes whose instances count against it and will end one day."""

    @property
    def claimed(self) -> tuple[NodeName, ...]:
        """Return the nodes that this run must claim."""
        return tuple(
            node for launch in self.launches for ask in launch.asks for node in ask.nodes
        ) + tuple(item.node for item in self.adopt)

    @property
    def named(self) -> tuple[NodeName, ...]:
        """Return every node that this plan would change."""
        stale = (item.node for item in self.replace if item.node is not None)
        return tuple(dict.fromkeys((*self.claimed, *stale)))


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The nodes that one job waits for."""

    job: int | None
    """None for nodes that no known job needs."""
    nodes: tuple[NodeName, ...]
    partition: str = ""
    """Empty where Slurm did not state it."""
    shared: tuple[NodeName, ...] = ()
    """Nodes that the job also waits for, and that an earlier job's request already holds."""
    whole: int | None = None
    """The het job's number, if the job is a component of one."""

    @property
    def wanted(self) -> tuple[NodeName, ...]:
        """Return all nodes that the job needs to begin."""
        return (*self.nodes, *self.shared)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of launches: jobs that have all their instances, and jobs that get none."""

    assignments: tuple[Assignment, ...] = ()
    """New instances of the jobs that have all."""
    failures: tuple[Failure, ...] = ()
    """Jobs that get none."""
    served: tuple[NodeName, ...] = ()
    """All nodes of the jobs that have all."""


_REQUEST: Final = frozenset(item.name for item in fields(LaunchRequest))


def askable(record: Mapping[str, Any]) -> bool:
    """Return whether the request in a journal line can be repeated.

    A line of a newer version may have more fields. Without them, a call with the same token would
    not be the same call.
    """
    offerings = [record["offering"], *record["others"]]
    more = record.keys() - _REQUEST - _OF_THE_LINE
    return not more and all(item.keys() <= _OFFERING for item in offerings)


def _offering(value: Mapping[str, Any]) -> Offering:
    known = {key: item for key, item in value.items() if key in _OFFERING}
    return Offering(**{**known, "lifecycle": Lifecycle(value["lifecycle"])})
