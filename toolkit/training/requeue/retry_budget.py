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

MAX_WAIT = 1800.0
"""Seconds."""

Action = Literal["done", "requeue", "hold", "fail"]


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """A budget of retries for one cause."""

    retries: int | None  # in WINDOW; None for no limit
    first_wait: float = 0.0  # seconds; doubles with each retry
    when_exceeded: Action = "hold"  # when the retries are used up


POLICY: Mapping[Cause, RetryBudget] = {
    # Not the job's fault, and over: the job is always requeued, without a wait.
    Cause.SPOT: RetryBudget(None),
    Cause.SCHEDULED: RetryBudget(None),
    Cause.PREEMPTED: RetryBudget(None),
    Cause.TIME_LIMIT: RetryBudget(None),
    Cause.REQUEUED: RetryBudget(None),
    Cause.NODE: RetryBudget(20),
    Cause.TRANSIENT: RetryBudget(5, first_wait=30.0),
    # The first time may be a neighbour's fault; the second is the job's own.
    Cause.MEMORY: RetryBudget(1, first_wait=30.0, when_exceeded="fail"),
    Cause.ERROR: RetryBudget(0, when_exceeded="fail"),
    Cause.CANCELLED: RetryBudget(0, when_exceeded="fail"),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about the job."""

    action: Action
    wait: float  # seconds before the job may start again
    reason: str  # for a person, complete


def decide(
    diagnosis: Diagnosis,
    attempts: Sequence[AttemptRecord],
    *,
    job_id: str,
    step: int | None,
    cap_usd: Decimal | None,
    now: float,
    chance: float,
) -> Decision:
    """Decide after the last of `attempts`, whose diagnosis is `diagnosis`.

    `step` is where the next attempt would begin, None when nothing counts steps. `chance`, from 0
    to 1, spreads the starts of jobs that failed together.
    """
    if diagnosis.cause is Cause.FINISHED:
        return Decision("done", 0.0, "finished")
    budget = POLICY[diagnosis.cause]
    count = len(_counted_attempts(diagnosis.cause, attempts, job_id, now))
    explanation = f"{diagnosis.cause} ({diagnosis.rule}: {diagnosis.matched_line})"
    if budget.retries is not None and count > budget.retries:
        count_text = f"{count} in 24 h, {budget.retries} allowed: " if budget.retries else ""
        return Decision(budget.when_exceeded, 0.0, f"{count_text}{explanation}")
    if reason := exceeded_limit(attempts, job_id=job_id, step=step, cap_usd=cap_usd):
        return Decision("hold", 0.0, f"{reason}: {explanation}")
    return Decision("requeue", _wait_seconds(budget, count, chance), explanation)


def exceeded_budget(attempts: Sequence[AttemptRecord], *, job_id: str, now: float) -> str:
    """Return why the job must be held, by all causes' budgets.

    "" when every cause is within its budget. It reads only the attempts file: a repeated call
    returns the same.
    """
    for cause, budget in POLICY.items():
        if budget.retries is None or budget.when_exceeded != "hold":
            continue
        counted = _counted_attempts(cause, attempts, job_id, now)
        if len(counted) > budget.retries:
            last = counted[-1]
            evidence = f"{last.rule or 'no-verdict'}: {last.detail or last.lost_message}"
            return f"{len(counted)} in 24 h, {budget.retries} allowed: {cause} ({evidence})"
    return ""


def exceeded_limit(
    attempts: Sequence[AttemptRecord], *, job_id: str, step: int | None, cap_usd: Decimal | None
) -> str:
    """Return why no attempt may follow these, whatever ended the last.

    "" when one may.
    """
    spent_usd = attempts_file.total_cost(attempts)
    if cap_usd is not None and spent_usd is not None and spent_usd >= cap_usd:
        return f"${spent_usd:.2f} spent, ${cap_usd:.2f} allowed"
    if attempts_file.without_progress(attempts, job_id, step):
        count = attempts_file.MAX_ATTEMPTS_WITHOUT_PROGRESS
        return f"{count} attempts began at step {step} and got no further"
    return ""


def parse_dollars(text: str | None) -> Decimal | None:
    """Return the dollars of a cap, with a dollar sign or without.

    None without a cap, or for a text that is no number.
    """
    try:
        amount = Decimal((text or "").strip().removeprefix("$"))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None


def _wait_seconds(budget: RetryBudget, count: int, chance: float) -> float:
    if not budget.first_wait:
        return 0.0
    seconds = min(MAX_WAIT, float(budget.first_wait * 2 ** max(0, count - 1)))
    return round(seconds * (0.75 + 0.5 * chance), 1)


def _counted_attempts(
    cause: Cause, attempts: Sequence[AttemptRecord], job_id: str, now: float
) -> Sequence[AttemptRecord]:
    """Return the attempts that count for the budget of a cause."""
    return [
        attempt
        for attempt in attempts_file.since_release(attempts)
        if attempt.job_id == job_id
        and now - (attempt.ended_at or now) <= WINDOW
        and _cause_of(attempt) is cause
    ]


def _cause_of(record: AttemptRecord) -> Cause | None:
    """Return the cause of an attempt's record.

    An attempt without a verdict is taken for the end of its node.
    """
    if record.cause == attempts_file.LOST:
        return Cause.NODE
    try:
        return Cause(record.cause)
    except ValueError:
        return None
