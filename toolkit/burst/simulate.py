"""Replays of one past queue with several thresholds: waits, dollars, jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from statistics import fmean, median
from typing import TYPE_CHECKING

from toolkit.burst.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.burst.history import PastJob
    from toolkit.burst.replay import Scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one threshold. Waits are seconds."""

    after: float | None
    """None: no job bursts."""
    jobs: int
    """Jobs that began to wait in the window and started."""
    bursts: int
    mean_wait: float
    median_wait: float
    p95_wait: float
    usd: Decimal
    usd_by_account: Mapping[str, Decimal] = field(default_factory=dict)
    over_budget: int = 0
    """Jobs that a larger budget would have let burst, or earlier."""
    never_started: int = 0
    """Jobs that the racks of today have no room for, and that did not burst."""


@dataclass(frozen=True, slots=True)
class ModelError:
    """The waits of the model against the real ones, over jobs that ran on racks."""

    jobs: int
    real_mean_wait: float = 0.0
    model_mean_wait: float = 0.0
    median_error: float = 0.0
    """The median of the absolute differences."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """The outcomes of one rule at several thresholds."""

    rack: str
    cloud: str
    since: float
    until: float
    error: ModelError
    outcomes: tuple[Outcome, ...]
    cancelled: int = 0
    """Jobs that never started and are not in the model."""


def simulate(
    jobs: Sequence[PastJob], scenario: Scenario, thresholds: Iterable[float]
) -> Simulation:
    """Replay the queue without bursts, and with each threshold."""
    longest_first = sorted(set(thresholds), reverse=True)
    return Simulation(
        rack=scenario.rule.rack,
        cloud=scenario.rule.cloud,
        since=scenario.since,
        until=scenario.until,
        error=_model_error(jobs, scenario),
        outcomes=(
            _outcome(jobs, scenario.without_bursts()),
            *(_outcome(jobs, scenario.with_threshold(after)) for after in longest_first),
        ),
    )


def _outcome(jobs: Sequence[PastJob], scenario: Scenario) -> Outcome:
    replay = Replay(scenario)
    replay.run(jobs)
    waits = sorted(replay.waits.values())
    usd_by_account = replay.usd_by_account
    return Outcome(
        after=scenario.rule.after if scenario.bursts else None,
        jobs=len(waits),
        bursts=replay.bursts,
        mean_wait=fmean(waits) if waits else 0.0,
        median_wait=median(waits) if waits else 0.0,
        p95_wait=waits[min(len(waits) - 1, len(waits) * 95 // 100)] if waits else 0.0,
        usd=sum(usd_by_account.values(), Decimal(0)),
        usd_by_account=usd_by_account,
        over_budget=len(replay.over_budget),
        never_started=replay.never_started,
    )


def _model_error(jobs: Sequence[PastJob], scenario: Scenario) -> ModelError:
    """Replay the jobs that really ran on racks, and compare their waits."""
    on_racks = [job for job in jobs if not job.in_cloud]
    replay = Replay(scenario.without_bursts())
    replay.run(on_racks)
    pairs = [(on_racks[number].waited, wait) for number, wait in replay.waits.items()]
    if not pairs:
        return ModelError(0)
    return ModelError(
        jobs=len(pairs),
        real_mean_wait=fmean(real for real, _ in pairs),
        model_mean_wait=fmean(model for _, model in pairs),
        median_error=median(abs(real - model) for real, model in pairs),
    )
