"""What is to be launched for which jobs, and what came of it. Values only."""

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
    """One call for machines for these nodes, named by their order; at least `least`, or none.

    `others` are further offerings of the same lifecycle and zone that will do as well: the call is
    then a fleet. An empty `subnet` is one that the launch template says.
    """

    attempt: str
    cluster: str
    pool: str
    partition: str
    launch_template: str
    subnet: str
    offering: Offering
    nodes: tuple[NodeName, ...]
    others: tuple[Offering, ...] = ()
    least: int = 0

    @property
    def offerings(self) -> tuple[Offering, ...]:
        return (self.offering, *self.others)

    @property
    def at_least(self) -> int:
        return self.least or len(self.nodes)

    def to_record(self) -> dict[str, Any]:
        """Return it for a line of the journal. `attempt` and `nodes` are fields of that."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> LaunchRequest:
        """Read it from a line of the journal; unknown fields are left out.

        Raises KeyError, TypeError, ValueError or AttributeError for a line that `to_record` has
        not written.
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
    """What the cloud said about one offering of a launch; with `passed_on`, to another job."""

    offering: Offering
    error: CloudError
    passed_on: bool = False


@dataclass(frozen=True, slots=True)
class Launched:
    """The machines of the first nodes of a request, in order, and what was refused on the way to
    them.
    """

    machines: tuple[Instance, ...]
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """These nodes can't be had. `code` is the cloud's word, empty when it was not the cloud.
    `hold`: waiting does not help, a person must act; the job is to be held. `ended`: those of them
    that had a machine, which ends with this.
    """

    job: int | None
    nodes: tuple[NodeName, ...]
    slug: str
    code: str = ""
    message: str = ""
    hold: bool = False
    ended: tuple[NodeName, ...] = ()

    @property
    def reason(self) -> str:
        """What Slurm shows for the node."""
        return f"{REASON_PREFIX} {self.slug}" + (f" ({self.code})" if self.code else "")


@dataclass(frozen=True, slots=True)
class PoolAsk:
    """Nodes of one pool that one job waits for, and what to try for them, in turn."""

    pool: Pool
    nodes: tuple[NodeName, ...]
    ladder: tuple[Rung, ...] = ()


@dataclass(frozen=True, slots=True)
class JobLaunch:
    """Machines to start for one job, all or none. `nodes` are all that its ask brings, those that
    have a machine already included.
    """

    job: int | None
    asks: tuple[PoolAsk, ...]
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """`adopt`: machines there already. `replace`: machines too old, or of another pool, to be what
    Slurm waits for; they are ended first. `unended`: machines whose end was decided and that live;
    nothing is started beside them. `busy`: nodes left to the run that is at them. `asks`:
    all that the plan speaks of, those that get nothing included. `filling`: the nodes whose
    instances fill each quota.
    """

    adopt: tuple[Assignment, ...] = ()
    launches: tuple[JobLaunch, ...] = ()
    replace: tuple[Instance, ...] = ()
    failures: tuple[Failure, ...] = ()
    busy: tuple[NodeName, ...] = ()
    asks: tuple[JobRequest, ...] = ()
    unended: tuple[Instance, ...] = ()
    filling: Mapping[str, frozenset[NodeName]] = field(default_factory=dict)

    @property
    def claimed(self) -> tuple[NodeName, ...]:
        """The nodes this run must have for itself."""
        return tuple(
            node for launch in self.launches for ask in launch.asks for node in ask.nodes
        ) + tuple(item.node for item in self.adopt)

    @property
    def named(self) -> tuple[NodeName, ...]:
        """The nodes that something would be done for or to."""
        stale = (item.node for item in self.replace if item.node is not None)
        return tuple(dict.fromkeys((*self.claimed, *stale)))


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The nodes one job waits for. `job` is None for nodes that no job is known to want, and
    `partition` is empty where Slurm did not say it. `shared`: nodes that it waits for as well, and
    that the ask of a job before it brings. `whole`: the het job's number, of a component.
    """

    job: int | None
    nodes: tuple[NodeName, ...]
    partition: str = ""
    shared: tuple[NodeName, ...] = ()
    whole: int | None = None

    @property
    def wanted(self) -> tuple[NodeName, ...]:
        """All nodes without which the job can't begin."""
        return (*self.nodes, *self.shared)


@dataclass(frozen=True, slots=True)
class Results:
    """Jobs that have all their machines now, and jobs that get none. `served`: all nodes of the
    former; `assignments`: their new machines.
    """

    assignments: tuple[Assignment, ...] = ()
    failures: tuple[Failure, ...] = ()
    served: tuple[NodeName, ...] = ()


_REQUEST: Final = frozenset(item.name for item in fields(LaunchRequest))


def askable(record: Mapping[str, Any]) -> bool:
    """Tell whether a line of the journal has no more fields than a request.

    A newer version may have more, and asking again with the same token would be another call.
    """
    offerings = [record["offering"], *record["others"]]
    more = record.keys() - _REQUEST - _OF_THE_LINE
    return not more and all(item.keys() <= _OFFERING for item in offerings)


def _offering(value: Mapping[str, Any]) -> Offering:
    known = {key: item for key, item in value.items() if key in _OFFERING}
    return Offering(**{**known, "lifecycle": Lifecycle(value["lifecycle"])})
