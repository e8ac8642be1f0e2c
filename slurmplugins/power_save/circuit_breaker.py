"""Protected mode: a pool whose instances start and never become nodes gets no more of them.

Such instances cost money and do no work, and each one's job comes back for the next. After five
failures in a row, resume gives the pool's nodes back at once (`pool-protected`).

After a pause one job, the smallest, is let through as a probe. If its instance comes up, the pool
is open again; if not, the pause doubles. No person has to clear anything. Losing the file opens
every pool.
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

    from slurmplugins.model.instance import Boots
    from slurmplugins.model.launch import JobLaunch
    from slurmplugins.state.persistent_clock import Steady

SLUG: Final = "pool-protected"

THRESHOLD: Final = 5
"""Failures in a row. An instance that comes up beside them resets the count, so a weak zone does
not count."""

FIRST_PAUSE: Final = 600.0
LONGEST_PAUSE: Final = 3600.0
DOUBLINGS: Final = 3
"""Doublings of the pause at most: enough for the longest. A pool that never comes up would have
thousands."""

KEPT: Final = 8
"""Failures remembered for `toolkit why`."""

REMEMBERED: Final = 2 * 3600.0
"""Seconds that a counted instance is remembered. EC2 lists a terminated instance for about an hour.
When its node is asked for again in that time, the instance seems for a moment to have just ended in
its boot."""

_WORDS: Final = ("instance_id", "node", "pool", "why")


@dataclass(frozen=True, slots=True)
class Standing:
    """A pool's state in the breaker. Its times are those of the persistent clock."""

    failures: int = 0
    """Failures in a row."""
    since: float | None = None
    """Since then the pool is protected; None while it is open."""
    retry_at: float = 0.0
    """The next probe is let through at this time."""
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

        A probe has `patience` seconds to come up. A stored time further ahead than any pause is
        void: the file is damaged, or its clock was lost.
        """
        return self.retry_at if self.retry_at <= now + max(self.pause, patience) else now

    @property
    def pause(self) -> float:
        """Return the seconds from the last failure to the next probe."""
        return min(FIRST_PAUSE * 2.0 ** min(self.probes, DOUBLINGS), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class Record:
    """The content of the breaker's file."""

    pools: Mapping[str, Standing] = field(default_factory=dict)
    """Every pool that has failures."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """By id, the time at which a failed instance was counted."""


@dataclass(frozen=True, slots=True)
class Screened:
    """The breaker's answer about a plan's launches."""

    let: tuple[JobLaunch, ...]
    """Launches that may go on."""
    refused: tuple[Failure, ...]
    """A failure with its reason for each of the other launches."""
    record: Record
    """The record after that."""


def learn(record: Record, boots: Boots, now: float) -> Record:
    """Return the record after one pass.

    An instance that came up beside the failures outweighs them.
    """
    fresh = [item for item in boots.failed if item.instance_id not in record.counted]
    pools = {
        pool: standing
        for pool, standing in record.pools.items()
        if any(_counts(item, boots) for item in standing.last)
    }
    for pool in {item.pool for item in fresh if _counts(item, boots)}:
        mine = tuple(item for item in fresh if item.pool == pool and _counts(item, boots))
        pools[pool] = _worse(pools.get(pool, Standing()), mine, now)
    seen = {item.instance_id for item in boots.failed}
    counted = {
        instance_id: at
        for instance_id, at in {**dict.fromkeys(seen, now), **record.counted}.items()
        if instance_id in seen or abs(now - at) < REMEMBERED
    }
    return Record(pools, counted)


def screen(
    record: Record,
    launches: Sequence[JobLaunch],
    now: float,
    patience: float,
    wall: Callable[[float], float] = lambda moment: moment,
) -> Screened:
    """Decide which launches may go on.

    The smallest launch of those that could be a due probe becomes the probe. No other one may go on
    until the probe must have come up, which is `patience` seconds. `wall` turns a time into the
    wall clock's, for people.
    """
    pools = dict(record.pools)
    refused: dict[int, Failure] = {}
    for index in sorted(range(len(launches)), key=lambda at: len(launches[at].nodes)):
        job = launches[index]
        shut = [
            name
            for name in sorted({ask.pool.name for ask in job.asks})
            if name in pools and pools[name].protected
        ]
        if any(now < pools[name].shut_until(now, patience) for name in shut):
            text = "; ".join(
                _told(name, pools[name], wall(pools[name].shut_until(now, patience)))
                for name in shut
            )
            refused[index] = Failure(job.job, job.nodes, SLUG, message=text)
            continue
        for name in shut:
            pools[name] = replace(pools[name], retry_at=now + patience)
    let = tuple(job for index, job in enumerate(launches) if index not in refused)
    return Screened(let, tuple(refused.values()), replace(record, pools=pools))


def gate(state: Path, launches: Sequence[JobLaunch], steady: Steady, patience: float) -> Screened:
    """Apply `screen` to the file.

    A file that can't be used stops no launch.
    """
    with _held(state):
        record = load(state)
        screened = screen(record, launches, steady.now(), patience, steady.wall)
        if screened.record != record:
            _save(state, screened.record)
        return screened


def update(state: Path, boots: Boots, now: float) -> tuple[Record, Record]:
    """Apply `learn` to the file; return the records before and after."""
    with _held(state):
        before = load(state)
        after = learn(before, boots, now)
        if after != before:
            _save(state, after)
        return before, after


def load(state: Path) -> Record:
    """Read the record; an unreadable or absent one is empty."""
    try:
        data = loads((state / "protection.json").read_bytes())
        pools = {str(pool): _standing(item) for pool, item in data["pools"].items()}
        return Record(pools, {str(key): finite(at) for key, at in data["counted"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Record()


def _counts(failure: BootFailure, boots: Boots) -> bool:
    return failure.launched_at > boots.fine_until.get(failure.pool, -math.inf)


def _standing(item: dict[str, Any]) -> Standing:
    since = item["since"]
    return Standing(
        failures=int(finite(item["failures"])),
        since=None if since is None else finite(since),
        retry_at=finite(item["retry_at"]),
        probes=int(finite(item["probes"])),
        last=tuple(map(_failure, item["last"])),
    )


def _failure(item: dict[str, Any]) -> BootFailure:
    instance_id, node, pool, why = (str(item[key]) for key in _WORDS)
    launched_at = finite(item.get("launched_at", 0.0))
    return BootFailure(instance_id, node, pool, why, finite(item["at"]), launched_at)


def _worse(standing: Standing, failed: tuple[BootFailure, ...], now: float) -> Standing:
    total = standing.failures + len(failed)
    last = (*standing.last, *failed)[-KEPT:]
    if total < THRESHOLD:
        return replace(standing, failures=total, last=last)
    probes = standing.probes + 1 if standing.protected else 0
    since = now if standing.since is None else standing.since
    worse = Standing(failures=total, since=since, probes=probes, last=last)
    return replace(worse, retry_at=now + worse.pause)


def _told(pool: str, standing: Standing, next_try: float) -> str:
    when = datetime.fromtimestamp(next_try, UTC).strftime("%H:%M UTC")
    return f"pool {pool}: {standing.failures} machines in a row did not come up; next try {when}"


@contextlib.contextmanager
def _held(state: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(locked(state / "protection.lock"))
        yield


def _save(state: Path, record: Record) -> None:
    with contextlib.suppress(OSError):  # safe to lose: a full disk must not stop a launch
        write_atomically(state / "protection.json", json.dumps(asdict(record)).encode(), mode=0o640)
