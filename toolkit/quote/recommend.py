"""Pools with GPUs for a training, the cheapest for its work first. Pure.

Work is samples, where a run measured them, else operations at the GPUs' peak speed. Twice the GPUs
are taken to be twice as fast. For many that is too good: no answer has more than memory needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import Lifecycle
from toolkit.quote.gpus import gpu_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.model.instance import Offering
    from toolkit.quote.gpus import Gpu
    from toolkit.quote.history import History
    from toolkit.quote.measured import MeasuredRun
    from toolkit.quote.offers import Market

USABLE: Final = 0.92
"""Part of a GPU's memory that a training may fill: the driver and CUDA's context take the rest."""
HEADROOM: Final = 1.1
"""Of a measured peak: another batch may need more."""
LOST_SECONDS: Final = 600.0
"""Assumed work that an interruption costs, with its restart, beside the boot."""
LOW_USE: Final = 50.0
"""Percent. Below it the GPUs wait for something else, and a faster one would wait too."""
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Need:
    """Memory that a training needs, and its source."""

    gib: float  # over all GPUs
    reason: str
    run: MeasuredRun | None = None

    @classmethod
    def of_run(cls, run: MeasuredRun) -> Need:
        """Return the need of a run that was measured."""
        reason = (
            f"job {run.job} used {run.memory_mib / 1024:.1f} GiB of each of its {run.gpus} GPUs"
            f" on {run.instance_type}; {HEADROOM - 1:.0%} added"
        )
        return cls(run.gib * HEADROOM, reason, run)


@dataclass(frozen=True, slots=True)
class Choice:
    """A pool's GPUs for the training."""

    pool: str
    instance_type: str
    zone: str
    gpu: str
    gpus: int
    nodes: int
    lifecycle: str
    usd_per_hour: float
    usd_effective: float  # an hour, with the work that interruptions cost
    memory_mib: float  # that each GPU is expected to fill
    samples_per_second: float | None
    usd_per_work: float | None  # a million samples; without a measured speed, an exaFLOP
    other: str  # why it is spot, or not


def choices(need: Need, market: Market, history: History) -> list[Choice]:
    """Return the pools that can hold the training, cheapest first."""
    pool_choices = [
        choice
        for name in market.config.pools
        if (choice := _of_pool(name, need, market, history)) is not None
    ]
    return sorted(
        pool_choices,
        key=lambda item: (
            item.usd_per_work is None,
            item.usd_per_work or item.usd_effective,
            item.pool,
        ),
    )


def _of_pool(name: str, need: Need, market: Market, history: History) -> Choice | None:
    """Return a pool's best offering, if it can hold the training."""
    pool = market.config.pools[name]
    offered = [(item, price) for item, price in market.prices(name) if price.is_known]
    gpu = gpu_of(offered[0][0].type) if offered and pool.shape.gpus else None
    if gpu is None:
        return None
    gpus = _gpus(need.gib, gpu, pool.shape.gpus)
    nodes = ceil(gpus / pool.shape.gpus)
    if nodes > pool.count:
        return None
    risk = _Risk.of(market, history, nodes)
    priced = [
        _Priced(item, float(price.usd_per_hour) * gpus / pool.shape.gpus, risk)
        for item, price in offered
    ]
    best = min(priced, key=lambda item: item.effective)
    samples = _samples(need, gpu, gpus)
    work = samples if samples is not None else (gpu.tflops or 0) * gpus / 1e6
    return Choice(
        pool=name,
        instance_type=best.offering.type,
        zone=best.offering.zone,
        gpu=gpu.name,
        gpus=gpus,
        nodes=nodes,
        lifecycle=best.offering.lifecycle.value,
        usd_per_hour=best.usd,
        usd_effective=best.effective,
        memory_mib=need.gib / gpus * 1024,
        samples_per_second=samples,
        usd_per_work=best.effective / _HOUR / work * (1e6 if samples else 1) if work else None,
        other=_other(priced, risk),
    )


@dataclass(frozen=True, slots=True)
class _Risk:
    """Interruptions of spot, and their part of the price."""

    per_hour: float  # of one instance
    factor: float  # of the price
    source: str

    @classmethod
    def of(cls, market: Market, history: History, nodes: int) -> _Risk:
        interruptions, boot = history.interruptions, history.boot_seconds
        stated = market.config.training.interruptions_per_machine_hour
        if interruptions is not None:
            rate = interruptions.per_hour
            hours = f"{interruptions.instance_hours:,.0f} instance-hours"
            source = f"{interruptions.count} in {hours} of the records"
        elif stated:
            rate, source = stated, "as cluster.yaml says"
        else:
            rate, source = 1 / 24, "assumed, without a record: one a day"  # as training takes it
        lost = LOST_SECONDS + (boot.median if boot else 0.0)
        return cls(rate, 1 + rate * nodes * lost / _HOUR, source)


@dataclass(frozen=True, slots=True)
class _Priced:
    """An offering with its price for the training, in dollars an hour."""

    offering: Offering
    usd: float
    risk: _Risk

    @property
    def is_spot(self) -> bool:
        return self.offering.lifecycle is Lifecycle.SPOT

    @property
    def effective(self) -> float:
        """Return the price with the work that interruptions cost."""
        return self.usd * self.risk.factor if self.is_spot else self.usd


def _gpus(gib: float, gpu: Gpu, of_node: int) -> int:
    """Return the fewest GPUs that hold it; over several nodes, whole nodes."""
    gpus = max(1, ceil(gib / (gpu.memory_gib * USABLE)))
    return gpus if gpus <= of_node else ceil(gpus / of_node) * of_node


def _samples(need: Need, gpu: Gpu, gpus: int) -> float | None:
    """Return the expected samples a second, from a run on other GPUs."""
    run = need.run
    if run is None or not run.samples_per_second:
        return None
    used = gpu_of(run.instance_type)
    if used is not None and used == gpu:
        return run.samples_per_second * gpus / run.gpus
    if used is None or not used.tflops or not gpu.tflops:
        return None
    factor = gpu.tflops / used.tflops
    if run.utilization is not None and run.utilization < LOW_USE:
        factor = min(factor, 1.0)  # it waited for something else
    return run.samples_per_second * gpus / run.gpus * factor


def _other(priced: Sequence[_Priced], risk: _Risk) -> str:
    """Return why it is spot, or not."""
    spot = min((item.effective for item in priced if item.is_spot), default=None)
    fixed = min((item.effective for item in priced if not item.is_spot), default=None)
    if spot is None or fixed is None:
        return "the pool has no other"
    lost = f"{risk.per_hour:.3f} interruptions an instance-hour ({risk.source}) cost"
    part = f"{lost} {risk.factor - 1:.1%} of the work"
    return f"{part}; with them spot is {spot:.2f}, on demand {fixed:.2f} USD/h"
