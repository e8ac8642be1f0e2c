"""How often to save, and whether stopping fits into the time that a notice gives. Only arithmetic.

Young (CACM 17, 1974): with `cost` seconds lost by a save and `mtti` seconds between interruptions,
saving after every sqrt(2 · cost · mtti) seconds of work loses least, to saves and to work done
again together. Daly (Future Generation Computer Systems 22, 2006) has the next terms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.training.requeue.failure_cause import Cause
from toolkit.training.run_folder.attempts import HELD, RUNNING, AttemptRecord

NOTICE = 120.0  # what EC2 gives before it takes a spot machine
NOTICED = 5.2  # until the workers know: the node agent looks every 5 s, they look every 0.2
LEAVING = 12.0  # the record's last words (10 s at most), the exit, the filesystem's last flush

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


def interval(cost: float, mtti: float, *, floor: float, ceiling: float) -> float:
    """Seconds of work from the end of a save to the next one, by Daly's higher-order estimate.

    Within the bounds. A save in the background costs what it makes training wait.
    """
    if cost >= 2 * mtti:  # interrupted before it has paid off, whatever the interval
        best = mtti
    else:
        share = math.sqrt(cost / (2 * mtti))
        best = math.sqrt(2 * cost * mtti) * (1 + share / 3 + share * share / 9) - cost
    return min(max(best, floor), ceiling)


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


@dataclass(frozen=True, slots=True)
class StopForecast:
    """Where the seconds between a notice and the exit would go, at worst."""

    noticing: float
    steps: float  # the step that sees the request, and the one after, in which all agree
    in_flight: float  # of the save that has just begun, in the background or not
    saving: float
    leaving: float
    bytes: int

    @property
    def seconds(self) -> float:
        return self.noticing + self.steps + self.in_flight + self.saving + self.leaving

    def problem(self, notice: float = NOTICE) -> str | None:
        """What does not fit into the notice; None where all of it does."""
        if self.seconds <= notice:
            return None
        saves = self.saving + self.in_flight
        return (
            f"a stop would take {self.seconds:.0f} s and a spot notice gives {notice:.0f}:"
            f" {self.steps:.0f} s for two steps, {saves:.0f} s for saving"
            f" {self.bytes / 2**30:.1f} GiB"
        )

    def advice(self, notice: float = NOTICE) -> str:
        """What to change where it does not fit, the least first."""
        if self.steps > self.saving + self.in_flight:
            return "take fewer samples a step; or more ranks, each with fewer"
        changes = []
        if self.in_flight > self.saving and self.seconds - self.in_flight + self.saving <= notice:
            changes.append(
                "save with background=True: a stop leaves its reading back and S3 behind"
            )
        left = notice - self.noticing - self.steps - self.leaving
        if left > 0:
            mib = self.bytes / 2**20
            needed = 2 * mib / left
            changes.append(f"write at {needed:.0f} MiB/s, not {mib / max(self.saving, 1e-9):.0f}")
        changes += [
            "codec=DcpCodec(): every rank writes its share",
            "more ranks, each with less to write",
            "a filesystem with more throughput, or machines with more network",
        ]
        return "; or ".join(changes)

    def warning(self, notice: float = NOTICE) -> str | None:
        """None where it fits; else what does not, and what to change."""
        problem = self.problem(notice)
        return problem and f"{problem}. To change that: {self.advice(notice)}"


def forecast(
    *, step_seconds: float, in_flight_seconds: float, save_seconds: float, saved_bytes: int
) -> StopForecast:
    """What a stop would take with steps and saves as they were measured.

    It may come when a save has just begun: that one is waited for, and another one is made.
    """
    return StopForecast(
        noticing=NOTICED,
        steps=2 * step_seconds,
        in_flight=in_flight_seconds,
        saving=save_seconds,
        leaving=LEAVING,
        bytes=saved_bytes,
    )
