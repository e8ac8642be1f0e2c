"""Decide whether one waiting job may burst. Pure: no input or output.

The same function decides on the head, in `toolkit burst simulate` and in the property tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurmplugins.config.governor import GovernorConfig, RackRule
    from slurmplugins.model.queued_job import NodeGroup, QueuedJob, QueuePartition, Request

CENT: Final = Decimal("0.01")
HOUR: Final = Decimal(3600)
_SITE_DATA: Final = re.compile(r"(?:^|[\s;,|])site-data=(\d{1,9}(?:\.\d{1,3})?)([MGT])\b", re.ASCII)
_LIMIT: Final = re.compile(r"Assoc|QOS|AccountingPolicy|Max[A-Za-z]+PerAccount")
"""Slurm's reasons for a job that a limit keeps (job_state_reason_string)."""
_S3_DATA: Final = re.compile(r"(?:^|[\s;,|])s3-data\b", re.ASCII)
_GIGABYTES: Final = {"M": Decimal("0.001"), "G": Decimal(1), "T": Decimal(1000)}
_BITS: Final = 8000  # megabits in a gigabyte


class Reason(StrEnum):
    """The reason that a job may burst, or stays. Stable: people and reports see it."""

    # It may burst.
    AGE = "age"
    DEADLINE = "deadline"
    RACKS_LACK = "racks-lack"
    """No rack node will ever do: its GPU, its size or its time."""

    # It stays, whatever its age.
    HELD = "held"
    NOT_ELIGIBLE = "not-eligible"
    LIMITS = "limits"
    """A limit of its association or QOS keeps it, in the cloud as well."""
    HET_JOB = "het-job"
    INTERACTIVE = "interactive"
    NO_REQUEUE = "no-requeue"
    NODELIST = "nodelist"
    RESERVATION = "reservation"
    LICENSES = "licenses"
    CONSTRAINT = "constraint"
    UNDONE = "undone"
    SLURM_REFUSED = "slurm-refused"
    CLOUD_REFUSED = "cloud-refused"
    NO_BUDGET = "no-budget"
    QOS = "qos"
    CLOUD_PROBLEM = "cloud-problem"
    CLOUD_FIRST = "cloud-first"
    CLOUD_LACKS = "cloud-lacks"
    NO_TIME_LIMIT = "no-time-limit"
    CLOUD_TIME_LIMIT = "cloud-time-limit"
    PRICE_UNKNOWN = "price-unknown"
    DATA_UNKNOWN = "data-unknown"
    CLOUD_LATE = "cloud-late"

    # It stays for now.
    YOUNG = "young"
    RACKS_SOON = "racks-soon"
    OVER_BUDGET = "over-budget"


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a decision besides the job and its rule."""

    now: float
    rack: QueuePartition
    cloud: QueuePartition
    remaining_usd: Decimal
    """US dollars that the account may still spend or commit to in this month."""
    cloud_problem: str = ""
    """Why nothing may be launched now."""
    bursts_already: bool = False
    """The governor let it burst in an earlier pass, and it still waits."""
    undone: bool = False
    """A person took the cloud's partition away again."""
    refusal: str = ""
    """Why Slurm refused the last change of this job."""
    refused_by_cloud: bool = False
    """Its last instances never came up, some minutes ago."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The job's cost in the cloud at worst, with all of its tasks."""

    nodes: int
    usd_per_hour: Decimal
    """Of one task."""
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer about one job, with all figures that led to it."""

    job: int
    label: str
    account: str
    rack: str
    cloud: str
    bursts: bool
    reason: Reason
    waited: float = 0.0
    expected_in: float | None = None
    """Seconds until racks are free for it, as backfill expects."""
    after: float | None = None
    cost: Cost | None = None
    remaining_usd: Decimal = Decimal(0)
    data_seconds: float = 0.0
    data_usd: Decimal = Decimal(0)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Case:
    """A job with everything that its checks look at."""

    job: QueuedJob
    rule: RackRule
    facts: Facts
    cost: Cost | None
    price_known: bool
    data_seconds: float | None
    waited: float
    expected_in: float | None
    cloud_ready: float
    """Seconds until it would begin in the cloud."""


def decide(job: QueuedJob, rule: RackRule, facts: Facts, config: GovernorConfig) -> Decision:
    """Return the decision about a waiting job of the rule's racks."""
    case = _case(job, rule, facts, config)
    reason = next((slug for check in _STAYS if (slug := check(case))), None)
    bursts = reason is None
    if reason is None:
        reason = _burst_reason(case)
        late_reason = _stays_for_now(case, reason)
        bursts, reason = late_reason is None, late_reason or reason
    return Decision(
        job=job.id,
        label=job.label,
        account=job.account,
        rack=rule.rack,
        cloud=rule.cloud,
        bursts=bursts,
        reason=reason,
        waited=case.waited,
        expected_in=case.expected_in,
        after=rule.after_of(job.qos),
        cost=case.cost,
        remaining_usd=facts.remaining_usd,
        data_seconds=case.data_seconds or 0.0,
        data_usd=(_site_gigabytes(job, rule) or Decimal(0)) * rule.data.usd_per_gb,
        detail=_detail(reason, case),
    )


def worst_cost(
    job: QueuedJob, cloud: QueuePartition, rule: RackRule, config: GovernorConfig
) -> Cost | None:
    """Return the cost of the job at worst; None if not known.

    Slurm may take any nodes that do, so the dearest count. The time is the boot, the whole time
    limit and the seconds until the instance ends.
    """
    offers = [
        (nodes * Decimal(group.usd_per_hour or "NaN"), nodes)
        for group in cloud.groups
        if (nodes := group.most_nodes_for(job.request)) is not None
    ]
    if offers and (mixed := _dearest_mix(cloud.groups, job.request)):
        offers.append(mixed)
    if not offers or job.time_limit is None or any(not usd.is_finite() for usd, _ in offers):
        return None
    usd_per_hour, nodes = max(offers)
    seconds = Decimal(config.boot + job.time_limit + config.tail)
    moved = _site_gigabytes(job, rule) or Decimal(0)
    usd = (usd_per_hour * seconds / HOUR + moved * rule.data.usd_per_gb) * job.tasks
    return Cost(nodes, usd_per_hour, usd.quantize(CENT, ROUND_UP))


def _dearest_mix(groups: Iterable[NodeGroup], request: Request) -> tuple[Decimal, int] | None:
    """Return the price an hour of the dearest nodes of several groups.

    None where groups need different numbers of nodes: then each counts alone.
    """
    one_node = replace(request, nodes=1, cpus=1, memory_mib=0, gpus=min(request.gpus, 1))
    usable = [group for group in groups if group.nodes_for(one_node) is not None]
    present = sum(group.count for group in usable)
    numbers = {replace(group, count=present).most_nodes_for(request) for group in usable}
    if len(numbers) != 1 or (number := numbers.pop()) is None:
        return None
    if not all(group.usd_per_hour for group in usable):
        return Decimal("NaN"), number
    usd, left = Decimal(0), number
    for group in sorted(usable, key=lambda group: -Decimal(group.usd_per_hour)):
        taken = min(left, group.count)
        usd, left = usd + taken * Decimal(group.usd_per_hour), left - taken
    return usd, number


def _case(job: QueuedJob, rule: RackRule, facts: Facts, config: GovernorConfig) -> _Case:
    gigabytes = _site_gigabytes(job, rule)
    data_seconds = (
        None if gigabytes is None else float(gigabytes) * _BITS / rule.data.mbit_per_second
    )
    usable = [g for g in facts.cloud.groups if g.nodes_for(job.request) is not None]
    return _Case(
        job=job,
        rule=rule,
        facts=facts,
        cost=worst_cost(job, facts.cloud, rule, config),
        price_known=all(group.usd_per_hour for group in usable),
        data_seconds=data_seconds,
        waited=max(0.0, facts.now - max(job.submitted_at, job.eligible_at or 0.0)),
        expected_in=_expected_in(job, rule, facts),
        cloud_ready=config.boot + (data_seconds or 0.0),
    )


def _expected_in(job: QueuedJob, rule: RackRule, facts: Facts) -> float | None:
    """Return the seconds until racks are free; None where backfill says nothing.

    With two partitions the expectation may be the cloud's. A start that has long passed is a
    record of backfill that it did not renew.
    """
    if facts.bursts_already or not job.start_at or job.start_at < facts.now - rule.soon:
        return None
    return max(0.0, job.start_at - facts.now)


def _site_gigabytes(job: QueuedJob, rule: RackRule) -> Decimal | None:
    """Return the data that must be moved first; None if not known."""
    if match := _SITE_DATA.search(job.comment):
        return Decimal(match[1]) * _GIGABYTES[match[2]]
    return None if rule.data.on_site and not _S3_DATA.search(job.comment) else Decimal(0)


def _own_obstacle(case: _Case) -> Reason | None:
    """Return what in the job itself keeps it on racks."""
    job, slugs = case.job, Reason
    obstacles = (
        (job.held or job.priority == 0, slugs.HELD),
        (job.eligible_at is None or job.eligible_at > case.facts.now, slugs.NOT_ELIGIBLE),
        (bool(_LIMIT.match(job.reason)), slugs.LIMITS),
        (job.het_job, slugs.HET_JOB),
        (not job.batch, slugs.INTERACTIVE),
        (not job.may_requeue, slugs.NO_REQUEUE),
        (bool(job.required_nodes), slugs.NODELIST),
        (bool(job.reservation), slugs.RESERVATION),
        (bool(job.licenses), slugs.LICENSES),
        (bool(job.constraint) and not job.request.features, slugs.CONSTRAINT),
        (case.facts.undone, slugs.UNDONE),
        (bool(case.facts.refusal), slugs.SLURM_REFUSED),
        (case.facts.refused_by_cloud, slugs.CLOUD_REFUSED),
    )
    return next((slug for applies, slug in obstacles if applies), None)


def _not_permitted(case: _Case) -> Reason | None:
    """Return why the rule leaves no job like this to the cloud."""
    if case.job.account not in case.rule.budgets:
        return Reason.NO_BUDGET
    return Reason.QOS if case.rule.after_of(case.job.qos) is None else None


def _cloud_obstacle(case: _Case) -> Reason | None:
    """Return why the cloud can't have the job."""
    job, cloud, rack = case.job, case.facts.cloud, case.facts.rack
    fits = any(group.nodes_for(job.request) is not None for group in cloud.groups)
    obstacles = (
        (bool(case.facts.cloud_problem) or not cloud.up, Reason.CLOUD_PROBLEM),
        (cloud.tier > rack.tier or cloud.factor > rack.factor, Reason.CLOUD_FIRST),
        (not fits or not cloud.allows(job), Reason.CLOUD_LACKS),
        (job.time_limit is None, Reason.NO_TIME_LIMIT),
        (
            cloud.max_time is not None and (job.time_limit or 0) > cloud.max_time,
            Reason.CLOUD_TIME_LIMIT,
        ),
        (not case.price_known or case.cost is None, Reason.PRICE_UNKNOWN),
        (case.data_seconds is None, Reason.DATA_UNKNOWN),
        (_is_late(case, case.cloud_ready), Reason.CLOUD_LATE),
    )
    return next((slug for applies, slug in obstacles if applies), None)


_STAYS: Final[tuple[Callable[[_Case], Reason | None], ...]] = (
    _own_obstacle,
    _not_permitted,
    _cloud_obstacle,
)


def _is_late(case: _Case, start_in: float) -> bool:
    """Return whether a start then ends after the job's deadline."""
    deadline, limit = case.job.deadline, case.job.time_limit or 0.0
    return bool(deadline) and case.facts.now + start_in + limit > (deadline or 0.0)


def _burst_reason(case: _Case) -> Reason:
    """Return why the job would burst, if nothing were against it."""
    if not case.facts.rack.can_ever_run(case.job):
        return Reason.RACKS_LACK
    # Without an expectation nobody knows that racks are late: the job then bursts by its age.
    if case.rule.deadline and case.expected_in is not None and _is_late(case, case.expected_in):
        return Reason.DEADLINE
    return Reason.AGE


def _stays_for_now(case: _Case, reason: Reason) -> Reason | None:
    """Return what keeps the job for now; None if nothing does."""
    if reason is Reason.AGE and not case.facts.bursts_already:
        soon = max(case.rule.soon, case.cloud_ready)
        if case.expected_in is not None and case.expected_in <= soon:
            return Reason.RACKS_SOON
        if case.waited < (case.rule.after_of(case.job.qos) or 0.0):
            return Reason.YOUNG
    usd = case.cost.usd if case.cost else Decimal(0)
    return Reason.OVER_BUDGET if usd > case.facts.remaining_usd else None


def _detail(reason: Reason, case: _Case) -> str:
    if reason is Reason.CLOUD_PROBLEM:
        return case.facts.cloud_problem or f"partition {case.facts.cloud.name} is not up"
    return case.facts.refusal if reason is Reason.SLURM_REFUSED else case.job.reason
