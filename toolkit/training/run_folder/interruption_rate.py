"""Estimate from a run's attempts how often it loses an instance."""

from collections.abc import Sequence

from toolkit.training.run_folder.attempts import HELD, RUNNING, AttemptRecord, Cause

# An end that the job or its owner caused says nothing about the instances. More frequent saves
# would not prevent it. Every other cause counts, those of later editions too.
_NO_INTERRUPTION = frozenset(
    {
        *(Cause.FINISHED, Cause.ERROR, Cause.MEMORY, Cause.TIME_LIMIT, Cause.CANCELLED),
        *(Cause.REQUEUED, "no-progress", HELD, RUNNING),
    }
)
# The rate before a run has seen any interruption: one in an instance's day. Most spot instances
# live longer. Saving a little too often costs less than saving too seldom.
_EXPECTED_HOURS = 24.0


def mtti(
    attempts: Sequence[AttemptRecord],
    instance_count: int,
    *,
    per_instance_hour: float | None = None,
) -> float:
    """Return the mean time to interruption of a run, in seconds.

    An attempt counts as interrupted unless the job or its owner caused its end.
    `per_instance_hour` is a known rate to begin with. The run's own attempts count beside one
    interruption at that rate.
    """
    interrupted_attempts = [
        attempt for attempt in attempts if attempt.cause not in _NO_INTERRUPTION
    ]
    hours = sum((attempt.seconds or 0) / 3600 * len(attempt.nodes) for attempt in attempts)
    expected_hours = 1 / per_instance_hour if per_instance_hour else _EXPECTED_HOURS
    rate = (1 + len(interrupted_attempts)) / (expected_hours + hours)
    return 3600 / (rate * max(1, instance_count))
