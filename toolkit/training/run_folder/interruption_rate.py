"""Estimate how often something takes one of a run's instances, from its own attempts."""

from collections.abc import Sequence

from toolkit.training.run_folder.attempts import HELD, RUNNING, AttemptRecord, Cause

# What a job does to itself, or its owner to it, says nothing about the machines: no more often
# saved, it would end so all the same. Every other word counts, those of later editions too.
_OWN_WILL = frozenset(
    {
        *(Cause.FINISHED, Cause.ERROR, Cause.MEMORY, Cause.TIME_LIMIT, Cause.CANCELLED),
        *(Cause.REQUEUED, "no-progress", HELD, RUNNING),
    }
)
# Before a run has seen any: one interruption in a machine's day. Spot machines are mostly left
# alone for longer; to save a little too often costs less than to save too seldom.
_EXPECTED_HOURS = 24.0


def mtti(
    attempts: Sequence[AttemptRecord], machines: int, *, per_machine_hour: float | None = None
) -> float:
    """Seconds until something takes one of the machines, as this run's attempts let one expect.

    `per_machine_hour` is the rate to begin with where one is known; what the run has seen so far
    counts beside one interruption at that rate.
    """
    taken = [attempt for attempt in attempts if attempt.cause not in _OWN_WILL]
    hours = sum((attempt.seconds or 0) / 3600 * len(attempt.nodes) for attempt in attempts)
    expected = 1 / per_machine_hour if per_machine_hour else _EXPECTED_HOURS
    rate = (1 + len(taken)) / (expected + hours)
    return 3600 / (rate * max(1, machines))
