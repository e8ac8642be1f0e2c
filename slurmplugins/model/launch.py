"""Launches for jobs: requests, the plan of one process, results. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import Throttled
from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.instance import Lifecycle, Offering
from slurmplugins.model.node import REASON_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.errors import CloudError
    from slurmplugins.model.instance import Assignment, Instance, OfferingGroup, Pool


UNRESOLVED_LAUNCH: Final = "launch-in-doubt"
NOT_AWAITED: Final = "not-awaited"

_OFFERING_FIELDS: Final = frozenset(item.name for item in fields(Offering))
_LINE_FIELDS: Final = frozenset({"at", "boot", "jobs", "kind", "run", "steady", "up"})


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
    def min_instances(self) -> int:
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
        text_fields = ("attempt", "cluster", "pool", "partition", "launch_template", "subnet")
        if not all(
            isinstance(text, str) for text in (*record["nodes"], *map(record.get, text_fields))
        ):
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
    from_another_job: bool = False
    """EC2 gave this error to another job a moment ago. EC2 was not called for this job."""

    @property
    def throttled(self) -> bool:
        return isinstance(self.error, Throttled)


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The result of a launch."""

    instances: tuple[Instance, ...]
    """Instances of the request's first nodes, in the order of the nodes."""
    refusals: tuple[Refusal, ...] = ()
    """Offerings that EC2 refused before the launch succeeded."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Nodes that get no instance, with the reason."""

    job: int | None
    nodes: tuple[NodeName, ...]
    reason_code: str
    code: str = ""
    """EC2's error code. Empty when the failure did not come from EC2."""
    message: str = ""
    hold: bool = False
    """The job is to be held: waiting does not help, a person must act."""
    terminated_nodes: tuple[NodeName, ...] = ()
    """Subset of `nodes` that had an instance, which is terminated now."""

    @property
    def reason(self) -> str:
        """Return the node's reason as Slurm shows it."""
        return f"{REASON_PREFIX} {self.reason_code}" + (f" ({self.code})" if self.code else "")


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """Nodes of one pool that one job waits for."""

    job: int | None
    nodes: tuple[NodeName, ...]
    pool: Pool = field(hash=False)
    fallback_order: tuple[OfferingGroup, ...] = field(default=(), hash=False)
    """Groups of offerings, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class JobLaunch:
    """Instances to launch for one job, all or none."""

    job: int | None
    node_requests: tuple[NodeRequest, ...]
    nodes: tuple[NodeName, ...]
    """All nodes of the job's request, also nodes that already have an instance."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """The plan of one ResumeProgram process."""

    adoptions: tuple[Assignment, ...] = ()
    """Instances that exist already and are used."""
    launches: tuple[JobLaunch, ...] = ()
    stale_instances: tuple[Instance, ...] = ()
    """Instances that Slurm cannot use: launched before this request, or of another pool.
    They are terminated before the launch.
    """
    failures: tuple[Failure, ...] = ()
    claimed_by_others: tuple[NodeName, ...] = ()
    """Nodes that another process has claimed. This one leaves them alone."""
    job_requests: tuple[JobRequest, ...] = ()
    """All requests that the plan covers, also requests that get nothing."""
    unterminated_instances: tuple[Instance, ...] = ()
    """Instances whose termination was decided and that still live. No instance is launched for
    their nodes.
    """
    nodes_by_quota: Mapping[str, frozenset[NodeName]] = field(default_factory=dict)
    """By quota: the nodes whose instances count against it and will end one day."""

    @property
    def nodes_to_claim(self) -> tuple[NodeName, ...]:
        """Return the nodes that this process must claim."""
        return tuple(
            node
            for launch in self.launches
            for node_request in launch.node_requests
            for node in node_request.nodes
        ) + tuple(item.node for item in self.adoptions)

    @property
    def affected_nodes(self) -> tuple[NodeName, ...]:
        """Return every node that this plan would change."""
        stale_nodes = (item.node for item in self.stale_instances if item.node is not None)
        return tuple(dict.fromkeys((*self.nodes_to_claim, *stale_nodes)))


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The nodes that one job waits for."""

    job: int | None
    """None for nodes that no known job needs."""
    nodes: tuple[NodeName, ...]
    partition: str = ""
    """Empty where Slurm did not state it."""
    shared_nodes: tuple[NodeName, ...] = ()
    """Nodes that the job also waits for, and that an earlier job's request already holds."""
    het_job: int | None = None
    """The het job's number, if the job is a component of one."""

    @property
    def all_nodes(self) -> tuple[NodeName, ...]:
        """Return all nodes that the job needs to begin."""
        return (*self.nodes, *self.shared_nodes)


@dataclass(frozen=True, slots=True)
class JobResults:
    """The results of launches: jobs that have all their instances, and jobs that get none."""

    assignments: tuple[Assignment, ...] = ()
    """New instances of the jobs that have all."""
    failures: tuple[Failure, ...] = ()
    """Jobs that get none."""
    served_nodes: tuple[NodeName, ...] = ()
    """All nodes of the jobs that have all."""


_REQUEST_FIELDS: Final = frozenset(item.name for item in fields(LaunchRequest))


def is_repeatable(record: Mapping[str, Any]) -> bool:
    """Return whether the request in a journal line can be repeated.

    A line of a newer version may have more fields. Without them, a call with the same token would
    not be the same call.
    """
    offerings = [record["offering"], *record["others"]]
    unknown_fields = record.keys() - _REQUEST_FIELDS - _LINE_FIELDS
    return not unknown_fields and all(item.keys() <= _OFFERING_FIELDS for item in offerings)


def _offering(value: Mapping[str, Any]) -> Offering:
    attributes = {key: item for key, item in value.items() if key in _OFFERING_FIELDS}
    return Offering(**{**attributes, "lifecycle": Lifecycle(value["lifecycle"])})
