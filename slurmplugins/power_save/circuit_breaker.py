"""Protected mode: a pool whose instances start and never register gets no more of them.

Such instances cost money and do no work. Each one's job is requeued and asks for the next. After
five failures in a row, resume gives the pool's nodes back at once (`pool-protected`).

After a pause one job, the smallest, is let through as a probe. If its instance registers, protected
mode ends; if not, the pause doubles. No person has to clear anything. Without its file, no pool is
protected: safe to lose.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model.instance import BootFailure
from slurmplugins.model.json_input import finite, loads
from slurmplugins.model.launch import Failure
from slurmplugins.system.files import locked, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from slurmplugins.model.instance import BootResults
    from slurmplugins.model.launch import JobLaunch
    from slurmplugins.state.persistent_clock import PersistentClock

POOL_PROTECTED: Final = "pool-protected"

THRESHOLD: Final = 5
"""Failures in a row that protect a pool. An instance that registers meanwhile resets the count, so
one weak zone protects no pool."""

FIRST_PAUSE: Final = 600.0
LONGEST_PAUSE: Final = 3600.0
MAX_DOUBLINGS: Final = 3
"""Most doublings of the pause: enough to reach LONGEST_PAUSE. In a pool that never recovers, the
count of probes has no limit, and the power would overflow."""

MAX_SHOWN: Final = 8
"""Failures remembered for `toolkit why`."""

REMEMBERED_SECONDS: Final = 2 * 3600.0
"""Seconds that a counted instance is remembered. EC2 lists a terminated instance for about an hour.
If Slurm powers its node up again meanwhile, that instance looks like a new boot failure for a
moment."""

_TEXT_FIELDS: Final = ("instance_id", "node", "pool", "why")


@dataclass(frozen=True, slots=True)
class BreakerState:
    """A pool's state in the breaker. Its times are those of the persistent clock."""

    failures: int = 0
    """Failures in a row."""
    since: float | None = None
    """Start of protected mode; None outside it."""
    retry_at: float = 0.0
    """Time from which the next probe is let through."""
    probes: int = 0
    """Probes that have failed."""
    last: tuple[BootFailure, ...] = ()
    """The latest failures, for people."""

    @property
    def protected(self) -> bool:
        """Return whether the pool gets no instances but probes."""
        return self.since is not None

    def shut_until(self, now: float, patience: float) -> float:
        """Return the time of the next probe.

        `patience` is the seconds that a probe has to register. A stored time further ahead than
        both the pause and `patience` is ignored: the file is damaged, or its clock was lost.
        """
        return self.retry_at if self.retry_at <= now + max(self.pause, patience) else now

    @property
    def pause(self) -> float:
        """Return the seconds from the last failure to the next probe."""
        return min(FIRST_PAUSE * 2.0 ** min(self.probes, MAX_DOUBLINGS), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class Record:
    """The content of the breaker's file."""

    pools: Mapping[str, BreakerState] = field(default_factory=dict)
    """Every pool that has failures."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """When each failed instance was counted, by instance id."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The breaker's answer about a plan's launches."""

    permitted: tuple[JobLaunch, ...]
    """Launches that may go on."""
    refusals: tuple[Failure, ...]
    """A failure with its reason for each of the other launches."""
    record: Record
    """The record after that."""


def record_boots(record: Record, boots: BootResults, now: float) -> Record:
    """Return the record with the boot results of one pass.

    A failed instance does not count against its pool if it was launched before
    `boots.healthy_until`.
    """
    new_failures = [item for item in boots.failures if item.instance_id not in record.counted]
    pools = {
        pool: breaker_state
        for pool, breaker_state in record.pools.items()
        if any(_counts_against_pool(item, boots) for item in breaker_state.last)
    }
    for pool in {item.pool for item in new_failures if _counts_against_pool(item, boots)}:
        pool_failures = tuple(
            item for item in new_failures if item.pool == pool and _counts_against_pool(item, boots)
        )
        pools[pool] = _after_failures(pools.get(pool, BreakerState()), pool_failures, now)
    failed_ids = {item.instance_id for item in boots.failures}
    counted = {
        instance_id: counted_at
        for instance_id, counted_at in {**dict.fromkeys(failed_ids, now), **record.counted}.items()
        if instance_id in failed_ids or abs(now - counted_at) < REMEMBERED_SECONDS
    }
    return Record(pools, counted)


def admit(
    record: Record,
    launches: Sequence[JobLaunch],
    now: float,
    patience: float,
    wall_time: Callable[[float], float] = lambda moment: moment,
) -> Admission:
    """Decide which launches may go on.

    In a protected pool whose probe is due, the smallest launch is the probe. It has `patience`
    seconds to register, and no other launch may go on there meanwhile. A launch in several
    protected pools may go on only if all their probes are due. `wall_time` converts a time to the
    wall clock's, for the message.
    """
    pools = dict(record.pools)
    refusals: dict[int, Failure] = {}
    for index in sorted(range(len(launches)), key=lambda position: len(launches[position].nodes)):
        job = launches[index]
        protected_names = [
            name
            for name in sorted({node_request.pool.name for node_request in job.node_requests})
            if name in pools and pools[name].protected
        ]
        if any(now < pools[name].shut_until(now, patience) for name in protected_names):
            text = "; ".join(
                _protected_text(name, pools[name], wall_time(pools[name].shut_until(now, patience)))
                for name in protected_names
            )
            refusals[index] = Failure(job.job, job.nodes, POOL_PROTECTED, message=text)
            continue
        for name in protected_names:
            pools[name] = replace(pools[name], retry_at=now + patience)
    permitted = tuple(job for index, job in enumerate(launches) if index not in refusals)
    return Admission(permitted, tuple(refusals.values()), replace(record, pools=pools))


def admit_launches(
    state: Path, launches: Sequence[JobLaunch], persistent_clock: PersistentClock, patience: float
) -> Admission:
    """Apply `admit` to the breaker's file.

    A file that can't be read or written stops no launch.
    """
    with _locked(state):
        record = load(state)
        admission = admit(record, launches, persistent_clock.now(), patience, persistent_clock.wall)
        if admission.record != record:
            _save(state, admission.record)
        return admission


def update(state: Path, boots: BootResults, now: float) -> tuple[Record, Record]:
    """Apply `record_boots` to the file; return the records before and after."""
    with _locked(state):
        previous = load(state)
        updated = record_boots(previous, boots, now)
        if updated != previous:
            _save(state, updated)
        return previous, updated


def load(state: Path) -> Record:
    """Read the record; an unreadable or absent one is empty."""
    try:
        data = loads((state / "protection.json").read_bytes())
        pools = {str(pool): _read_state(item) for pool, item in data["pools"].items()}
        return Record(pools, {str(key): finite(at) for key, at in data["counted"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Record()


def _counts_against_pool(failure: BootFailure, boots: BootResults) -> bool:
    return failure.launched_at > boots.healthy_until.get(failure.pool, -math.inf)


def _read_state(item: dict[str, Any]) -> BreakerState:
    since = item["since"]
    return BreakerState(
        failures=int(finite(item["failures"])),
        since=None if since is None else finite(since),
        retry_at=finite(item["retry_at"]),
        probes=int(finite(item["probes"])),
        last=tuple(map(_read_failure, item["last"])),
    )


def _read_failure(item: dict[str, Any]) -> BootFailure:
    instance_id, node, pool, why = (str(item[key]) for key in _TEXT_FIELDS)
    launched_at = finite(item.get("launched_at", 0.0))
    return BootFailure(instance_id, node, pool, why, finite(item["at"]), launched_at)


def _after_failures(
    breaker_state: BreakerState, failures: tuple[BootFailure, ...], now: float
) -> BreakerState:
    total = breaker_state.failures + len(failures)
    last = (*breaker_state.last, *failures)[-MAX_SHOWN:]
    if total < THRESHOLD:
        return replace(breaker_state, failures=total, last=last)
    probes = breaker_state.probes + 1 if breaker_state.protected else 0
    since = now if breaker_state.since is None else breaker_state.since
    new_state = BreakerState(failures=total, since=since, probes=probes, last=last)
    return replace(new_state, retry_at=now + new_state.pause)


def _protected_text(pool: str, breaker_state: BreakerState, next_try: float) -> str:
    when = datetime.fromtimestamp(next_try, UTC).strftime("%H:%M UTC")
    failures = f"{breaker_state.failures} instances in a row did not register"
    return f"pool {pool}: {failures}; next try {when}"


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(locked(state / "protection.lock"))
        yield


def _save(state: Path, record: Record) -> None:
    with contextlib.suppress(OSError):  # safe to lose: a full disk must not stop a launch
        write_atomically(state / "protection.json", json.dumps(asdict(record)).encode(), mode=0o640)
