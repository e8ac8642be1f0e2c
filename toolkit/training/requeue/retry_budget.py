"""Decide whether a job gets another attempt, and when. Pure; the policy is the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from toolkit.training.requeue.failure_cause import Diagnosis
from toolkit.training.run_folder import attempts as attempts_file
from toolkit.training.run_folder.attempts import AttemptRecord, Cause

WINDOW = 24 * 3600.0
"""Seconds for which a failure counts: a month's training may have one a week."""

LONGEST_WAIT = 1800.0
"""Seconds."""

Action = Literal["done", "requeue", "hold", "fail"]


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget of retries for one cause."""

    retries: int | None  # in WINDOW; None for no limit
    first_wait: float = 0.0  # seconds; doubles with each retry
    beyond: Action = "hold"  # when the retries are used up


POLICY: Mapping[Cause, Budget] = {
    # Not the job's fault, and over: the job may always come back, without a wait.
    Cause.SPOT: Budget(None),
    Cause.SCHEDULED: Budget(None),
    Cause.PREEMPTED: Budget(None),
    Cause.TIME_LIMIT: Budget(None),
    Cause.REQUEUED: Budget(None),
    Cause.NODE: Budget(20),
    Cause.TRANSIENT: Budget(5, first_wait=30.0),
    # The first time may be a neighbour's fault; the second is the job's own.
    Cause.MEMORY: Budget(1, first_wait=30.0, beyond="fail"),
    Cause.ERROR: Budget(0, beyond="fail"),
    Cause.CANCELLED: Budget(0, beyond="fail"),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about the job."""

    action: Action
    wait: float  # seconds before the job may start again
    reason: str  # for a person, complete


def decide(
    found: Diagnosis,
    attempts: Sequence[AttemptRecord],
    *,
    job_id: str,
    step: int | None,
    cap_usd: Decimal | None,
    now: float,
    chance: float,
) -> Decision:
    """Decide after the last of `attempts`, whose diagnosis is `found`.

    `step` is where the next attempt would begin, None when nothing counts steps. `chance`, from 0
    to 1, spreads the starts of jobs that failed together.
    """
    if found.cause is Cause.FINISHED:
        return Decision("done", 0.0, "finished")
    budget = POLICY[found.cause]
    same = len(_counted(found.cause, attempts, job_id, now))
    why = f"{found.cause} ({found.rule}: {found.seen})"
    if budget.retries is not None and same > budget.retries:
        many = f"{same} in 24 h, {budget.retries} allowed: " if budget.retries else ""
        return Decision(budget.beyond, 0.0, f"{many}{why}")
    if reason := exhausted(attempts, job_id=job_id, step=step, cap_usd=cap_usd):
        return Decision("hold", 0.0, f"{reason}: {why}")
    return Decision("requeue", _wait(budget, same, chance), why)


def overdrawn(attempts: Sequence[AttemptRecord], *, job_id: str, now: float) -> str:
    """Return why the job must be held, by all causes' budgets.

    "" when every cause is within its budget. It reads only the ledger: a repeated call returns the
    same.
    """
    for cause, budget in POLICY.items():
        counted = _counted(cause, attempts, job_id, now)
        if budget.retries is None or budget.beyond != "hold" or len(counted) <= budget.retries:
            continue
        last = counted[-1]
        why = f"{last.rule or 'no-word'}: {last.detail or last.without_a_word}"
        return f"{len(counted)} in 24 h, {budget.retries} allowed: {cause} ({why})"
    return ""


def exhausted(
    attempts: Sequence[AttemptRecord], *, job_id: str, step: int | None, cap_usd: Decimal | None
) -> str:
    """Return why no attempt may follow these, whatever ended the last.

    "" when one may.
    """
    spent = attempts_file.total_cost(attempts)
    if cap_usd is not None and spent is not None and spent >= cap_usd:
        return f"${spent:.2f} spent, ${cap_usd:.2f} allowed"
    if attempts_file.stalled(attempts, job_id, step):
        return f"{attempts_file.NO_PROGRESS} attempts began at step {step} and got no further"
    return ""


def dollars(text: str | None) -> Decimal | None:
    """Return the dollars of a cap, with a dollar sign or without.

    None without a cap, or for a text that is no number.
    """
    try:
        found = Decimal((text or "").strip().removeprefix("$"))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _wait(budget: Budget, same: int, chance: float) -> float:
    if not budget.first_wait:
        return 0.0
    doubled = min(LONGEST_WAIT, float(budget.first_wait * 2 ** max(0, same - 1)))
    return round(doubled * (0.75 + 0.5 * chance), 1)


def _counted(
    cause: Cause, attempts: Sequence[AttemptRecord], job_id: str, now: float
) -> Sequence[AttemptRecord]:
    """Return the attempts that count for the budget of a cause."""
    ours = [one for one in attempts_file.since_release(attempts) if one.job_id == job_id]
    recent = [one for one in ours if now - (one.ended_at or now) <= WINDOW]
    return [one for one in recent if _cause(one) is cause]


def _cause(record: AttemptRecord) -> Cause | None:
    """Return the cause of a ledger line.

    An attempt without a verdict is taken for the end of its node.
    """
    if record.cause == attempts_file.LOST:
        return Cause.NODE
    try:
        return Cause(record.cause)
    except ValueError:
        return None
