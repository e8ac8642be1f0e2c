"""What the head knows, as values that travel as JSON to people's commands.

Reading is tolerant both ways: a newer head may say more than this reader knows, an older one less.
Times are seconds since the epoch, None where there is none.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from slurmplugins.model.job_id import JobName

if TYPE_CHECKING:
    from collections.abc import Mapping


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodeReport:
    name: str
    flags: tuple[str, ...] = ()
    reason: str = ""
    pool: str = ""
    instance_id: str = ""
    static: bool = False


@dataclass(frozen=True, slots=True)
class InstanceReport:
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


@dataclass(frozen=True, slots=True)
class JobReport:
    """One record of slurmctld's. `waiting`: the array's tasks that it stands for, as `0-3,7%2`.
    `most_nodes`: of a range of nodes (`--nodes=2-4`), else 0; `node_count` is then the fewest.
    """

    id: int
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    states: tuple[str, ...] = ()
    reason: str = ""
    nodes: tuple[str, ...] = ()
    node_count: int = 0
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
    most_nodes: int = 0

    @property
    def label(self) -> str:
        """As squeue has it: a task is ARRAY_TASK, the tasks that wait together ARRAY_[TASKS]."""
        if self.task is not None:
            return str(JobName(self.array, self.task))
        return f"{self.array}_[{self.waiting}]" if self.waiting else str(self.id)


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One run of a job, as slurmdbd has it; a requeue makes a new one."""

    state: str
    exit_code: str = ""
    nodes: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    job: int = 0


@dataclass(frozen=True, slots=True)
class SetbackReport:
    """An offering that is skipped for the time being."""

    key: str
    code: str = ""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class StandingReport:
    """A pool whose machines did not come up of late."""

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
class HeadReport:
    """`unread`: what could not be read, and why. `decisions` are lines of the decision log.
    `unended`: why nothing is launched, while EC2 ends no instance.
    """

    at: float
    cluster: str = ""
    nodes: tuple[NodeReport, ...] = ()
    machines: tuple[InstanceReport, ...] = ()
    jobs: tuple[JobReport, ...] = ()
    attempts: tuple[AttemptReport, ...] = ()
    setbacks: tuple[SetbackReport, ...] = ()
    standings: tuple[StandingReport, ...] = ()
    last_pass: PassReport = field(default_factory=PassReport)
    decisions: tuple[Mapping[str, Any], ...] = ()
    consoles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    unended: str = ""


def to_json(sheet: HeadReport) -> dict[str, Any]:
    return asdict(sheet)


def from_json(value: Mapping[str, Any]) -> HeadReport:
    """Raises ValueError for what is no fact sheet at all."""
    rows: dict[str, type[Any]] = {
        "nodes": NodeReport,
        "machines": InstanceReport,
        "jobs": JobReport,
        "attempts": AttemptReport,
        "setbacks": SetbackReport,
        "standings": StandingReport,
    }
    try:
        given = dict(value)
        for key, kind in rows.items():
            given[key] = tuple(_read(kind, item) for item in given.get(key, ()))
        given["last_pass"] = _read(PassReport, given.get("last_pass", {}))
        given["consoles"] = {key: tuple(lines) for key, lines in given.get("consoles", {}).items()}
        return _read(HeadReport, given)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a fact sheet: {error}") from error


def _read(kind: type[_T], item: Mapping[str, Any]) -> _T:
    """The fields that this version knows; lists become tuples. KeyError without a needed one."""
    known: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]  # every kind above is a dataclass
        needed = each.default is MISSING and each.default_factory is MISSING
        if each.name in item:
            value = item[each.name]
            known[each.name] = tuple(value) if isinstance(value, list) else value
        elif needed:
            raise KeyError(each.name)
    return kind(**known)
