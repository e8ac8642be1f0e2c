"""The head's facts, as values that travel as JSON to people's commands.

Readers tolerate other versions: a newer head may report more than they know, an older one less.
Times are seconds since the epoch, None where there is none.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from slurmplugins.model.data_volume import FreeShares
from slurmplugins.model.login_node import LoginNodeReport
from slurmplugins.model.node import JobId

if TYPE_CHECKING:
    from collections.abc import Mapping


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node of slurmctld's."""

    name: str
    flags: tuple[str, ...] = ()
    reason: str = ""
    pool: str = ""
    static: bool = False


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """An instance with the cluster's tag."""

    id: str
    node: str = ""
    pool: str = ""
    role: str = ""
    state: str = ""
    type: str = ""
    zone: str = ""
    lifecycle: str = ""
    price: str = ""
    address: str = ""
    launched_at: float = 0.0
    end_code: str = ""
    trouble: tuple[str, ...] = ()
    """Problems that EC2 reports, in words for people."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A record of slurmctld's."""

    id: int
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    states: tuple[str, ...] = ()
    reason: str = ""
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    """The number of nodes; of a range of nodes, the smallest."""
    restarts: int = 0
    submitted_at: float | None = None
    eligible_at: float | None = None
    started_at: float | None = None
    admin_comment: str = ""
    comment: str = ""
    held: bool = False
    array: int = 0
    task: int | None = None
    waiting: str = ""
    """The tasks of an array that this record stands for, as `0-3,7%2`."""
    most_nodes: int = 0
    """The largest number of a range of nodes (`--nodes=2-4`), else 0."""

    @property
    def label(self) -> str:
        """Return the job's id as squeue shows it.

        A task is ARRAY_TASK. Tasks that wait together are ARRAY_[TASKS].
        """
        if self.task is not None:
            return str(JobId(self.array, self.task))
        return f"{self.array}_[{self.waiting}]" if self.waiting else str(self.id)


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """An attempt of a job, as slurmdbd has it. A requeue makes a new one."""

    state: str
    exit_code: str = ""
    nodes: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    job: int = 0


@dataclass(frozen=True, slots=True)
class UnavailabilityReport:
    """An offering that is unavailable for the time being."""

    key: str
    code: str = ""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class BreakerReport:
    """A pool with instances that failed to come up recently."""

    pool: str
    failures: int = 0
    protected_since: float | None = None
    retry_at: float = 0.0
    last: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassReport:
    """Reconcile's last pass."""

    at: float = 0.0
    note: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BurstReport:
    """The burst governor's decision about a waiting job."""

    job: int
    label: str = ""
    bursts: bool = False
    reason: str = ""
    text: str = ""
    """The decision with its figures, for people."""


@dataclass(frozen=True, slots=True)
class HeadReport:
    """Everything that the head reports."""

    at: float
    cluster: str = ""
    nodes: tuple[NodeReport, ...] = ()
    node_source: str = ""
    """The reader of the nodes: `pyslurm 25.11.2`, or `scontrol` with the reason."""
    machines: tuple[InstanceReport, ...] = ()
    jobs: tuple[JobReport, ...] = ()
    attempts: tuple[AttemptReport, ...] = ()
    setbacks: tuple[UnavailabilityReport, ...] = ()
    standings: tuple[BreakerReport, ...] = ()
    last_pass: PassReport = field(default_factory=PassReport)
    decisions: tuple[Mapping[str, Any], ...] = ()
    """Lines of the decision log."""
    consoles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The last console lines of failed instances, by instance id."""
    unread: tuple[str, ...] = ()
    """Facts that could not be read, with the reasons."""
    unended: str = ""
    """Why nothing is launched, while EC2 terminates no instance."""
    login_nodes: tuple[LoginNodeReport, ...] = ()
    bursts: tuple[BurstReport, ...] = ()
    denied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By partition: the accounts whose budgets allow spot alone. Slurm gives their jobs no reason.
    """
    budget_holds: tuple[int, ...] = ()
    """Jobs that the budgets of their projects hold."""
    data_volume: FreeShares | None = None
    """What is free of the head's data volume. A site's controller has none."""


def to_json(report: HeadReport) -> dict[str, Any]:
    return asdict(report)


def from_json(value: Mapping[str, Any]) -> HeadReport:
    """Read a report; ValueError if it is none."""
    rows: dict[str, type[Any]] = {
        "nodes": NodeReport,
        "machines": InstanceReport,
        "jobs": JobReport,
        "attempts": AttemptReport,
        "setbacks": UnavailabilityReport,
        "standings": BreakerReport,
        "login_nodes": LoginNodeReport,
        "bursts": BurstReport,
    }
    try:
        report = dict(value)
        for key, row_type in rows.items():
            report[key] = tuple(_read(row_type, item) for item in report.get(key, ()))
        report["last_pass"] = _read(PassReport, report.get("last_pass", {}))
        if (volume := report.get("data_volume")) is not None:
            report["data_volume"] = _read(FreeShares, volume)
        report["consoles"] = {
            key: tuple(lines) for key, lines in report.get("consoles", {}).items()
        }
        report["denied"] = {
            name: tuple(accounts) for name, accounts in report.get("denied", {}).items()
        }
        report["budget_holds"] = tuple(report.get("budget_holds", ()))
        return _read(HeadReport, report)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a head report: {error}") from error


def _read(kind: type[_T], item: Mapping[str, Any]) -> _T:
    """Build a value from the fields that this version knows.

    Lists become tuples. Raises KeyError if a required field is missing.
    """
    values: dict[str, Any] = {}
    for attribute in fields(kind):  # type: ignore[arg-type]  # every kind above is a dataclass
        is_required = attribute.default is MISSING and attribute.default_factory is MISSING
        if attribute.name in item:
            value = item[attribute.name]
            values[attribute.name] = tuple(value) if isinstance(value, list) else value
        elif is_required:
            raise KeyError(attribute.name)
    return kind(**values)
