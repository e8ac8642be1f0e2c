"""The journal of launches and terminations, so that no node ever gets two instances.

The file holds JSON lines, append-only and fsynced. It answers three questions.

- `claimed_nodes`: on which nodes is a live ResumeProgram process working?
- `recent_launches`: which instances were launched so recently that EC2 may not list them yet?
- `termination_causes`: which instances have we decided to terminate?

A process is live while it holds a lock on its own file. The kernel releases that lock however the
process ends. The journal's own lock is held for reading and appending only, never during a call to
EC2. Losing the journal costs time, not money: reconcile finds instances by their tags.

A process reads each line once and updates its view. Lines without meaning are dropped each time the
file has doubled. So its size depends on the number of instances, not on the number of requests.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import StateError
from slurmplugins.state import journal_file
from slurmplugins.state.journal_file import JournalFile
from slurmplugins.state.journal_view import JournalReplay, number
from slurmplugins.state.persistent_clock import PersistentClock
from slurmplugins.system.files import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from slurmplugins.errors import CloudError
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment, EndCause
    from slurmplugins.model.launch import LaunchRequest
    from slurmplugins.state.journal_view import JournalView, Record
    from slurmplugins.system.clock import Clock

LISTING_DELAY_SECONDS: Final = 120.0
"""Seconds for which DescribeInstances may not show a new instance. EC2 needs up to a minute."""

KEEP_SECONDS: Final = 24 * 3600.0
"""Seconds for which lines are kept. EC2 lists terminated instances for an hour.

The ledger needs the causes of their terminations.
"""

AHEAD_SECONDS: Final = 300.0
"""Seconds by which a line's time may be in the future, after the persistent clock was lost.

The line was then written a moment ago.
"""

COMPACT_BYTES: Final = 1024 * 1024
"""A smaller file is not compacted: reading it is quick."""


class Journal:
    """The journal file and its rules. One object per process; safe between processes and threads.

    All methods raise StateError if the file can't be used.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._path = directory / "journal.jsonl"
        self._file = JournalFile(self._path)
        self._lock = directory / "journal.lock"
        self._runs = directory / "runs"
        self._clock = clock
        self._boot = clock.boot()
        self._persistent_clock = PersistentClock(directory, clock)
        self._replay = self._empty_replay()

    @contextlib.contextmanager
    def resume_process(self) -> Iterator[str]:
        """Begin a ResumeProgram process, and yield its id.

        Its claims hold while the block runs, and end with the process.
        """
        process_id = os.urandom(8).hex()
        path = self._runs / f"{process_id}.lock"
        with contextlib.ExitStack() as stack:
            # Under the journal's lock: `remove_dead_locks` must not see the file before it is
            # locked, and take it for a dead process's.
            with self._locked():
                self._runs.mkdir(mode=0o750, exist_ok=True)
                stack.enter_context(locked(path))
            stack.callback(path.unlink, missing_ok=True)
            yield process_id

    def view(self, excluded: str = "") -> JournalView:
        """Return the journal's view now, without the claims of the process `excluded`."""
        with self._locked():
            return self._view(self._updated_replay(), excluded)

    def claim(
        self,
        process_id: str,
        choose: Callable[[JournalView], Iterable[NodeName]],
        *,
        to_resolve: bool = False,
    ) -> tuple[NodeName, ...]:
        """Claim the nodes that `choose` returns, and return them.

        `choose` sees the other processes' claims. None of them can claim nodes in between. With
        `to_resolve`, the nodes are claimed only to look up the outcome of their launch.
        """
        with self._locked():
            replay = self._updated_replay()
            nodes = tuple(choose(self._view(replay, excluded=process_id)))
            if not replay.claimed_by(process_id).issuperset(nodes):
                self._append(
                    {"kind": "claim", "run": process_id, "nodes": nodes, "settling": to_resolve}
                )
            return nodes

    def release(self, process_id: str, nodes: Iterable[NodeName]) -> None:
        """Release the process's claims on these nodes.

        Other processes may claim them then, and reconcile may act on them.
        """
        self._append_locked({"kind": "release", "run": process_id, "nodes": list(nodes)})

    def record_call(self, request: LaunchRequest, process_id: str, jobs: Sequence[int]) -> float:
        """Record a launch request, before the call to EC2.

        Returns the time by the monotonic clock at which it was on disk. Raises StateError if it
        can't be written: EC2 must not be called then.
        """
        record = request.to_record()
        self._append_locked({"kind": "intent", "run": process_id, "jobs": jobs, **record})
        return self._clock.monotonic()

    def record_launched(self, attempt: str, assignments: Iterable[Assignment]) -> None:
        """Record a launch's instances and their nodes."""
        machines = [[item.node, item.instance_id, item.address, item.type] for item in assignments]
        self._append_locked({"kind": "launched", "attempt": attempt, "machines": machines})

    def record_failed(self, attempt: str, error: CloudError) -> None:
        """Record that the last call of this launch launched no instance.

        Earlier calls without an answer keep their unknown outcome and their age. If the error
        resolves the launch, their outcome is known too.
        """
        error_fields = {
            "code": error.code,
            "slug": error.reason_code,
            "settles": error.resolves_launch,
        }
        self._append_locked({"kind": "failed", "attempt": attempt, **error_fields})

    def record_powered_down(self, nodes: Sequence[NodeName], since: float) -> None:
        """Record that Slurm powered these nodes down at `since`.

        `since` is a time of the monotonic clock. Instances that the nodes had before must
        not serve Slurm's next request for them, even if they can't be terminated now.
        """
        self._append_locked({"kind": "let-go", "nodes": nodes, "since": since})

    def mark_terminating(self, ids: Iterable[str], cause: EndCause) -> None:
        """Record that these instances will be terminated.

        From now on no process adopts them. Safe to repeat.
        """
        with self._locked():
            terminating = self._view(self._updated_replay()).termination_causes
            new_ids = [item for item in ids if item not in terminating]
            if new_ids:
                self._append({"kind": "ended", "ids": new_ids, "cause": cause})

    def mark_terminating_if_idle(
        self,
        instances: Iterable[tuple[str, NodeName | None]],
        cause: EndCause,
        since: float = math.inf,
        powered_off: Collection[NodeName] = frozenset(),
    ) -> frozenset[str]:
        """Record that idle instances will be terminated; return their ids.

        `instances` holds pairs of an instance id and its node. Three kinds of instances are left
        alone.

        - A process works on the node, or has worked on it after `since` (monotonic clock).
        - The instance was reassigned to another node.
        - An unreadable line names it, and the line is recent or the node is not in `powered_off`.

        In this step resume and the programs that terminate agree on each instance: only one of
        them gets it.
        """
        with self._locked():
            view = self._view(self._updated_replay())
            claimed_nodes = view.claimed_since(since)
            ids = [
                instance_id
                for instance_id, node in instances
                if node not in claimed_nodes
                and view.current_node(instance_id, node) == node
                and instance_id
                not in (view.recent_unreadable_ids if node in powered_off else view.unreadable_ids)
            ]
            new_ids = [
                instance_id for instance_id in ids if instance_id not in view.termination_causes
            ]
            if new_ids:
                self._append({"kind": "ended", "ids": new_ids, "cause": cause})
            return frozenset(ids)

    def remove_dead_locks(self) -> None:
        """Remove the lock files of killed processes.

        A process that ends normally removes its own file.
        """
        with self._locked():
            for path in self._runs.glob("*.lock"):
                if not self._is_live(path.stem):
                    path.unlink(missing_ok=True)

    def compact(self) -> None:
        """Drop old lines that belong to no live process.

        It does so only if the file is large, and twice as large as after the last time.
        """
        with self._locked():
            if self._file.size() < max(COMPACT_BYTES, 2 * self._updated_replay().compacted_size):
                return
            _, records = JournalFile(self._path).read()
            records_to_keep = journal_file.meaningful_records(
                records, self._recent, self._still_listed, self._is_live
            )
            self._file.rewrite(self._stamped({"kind": journal_file.COMPACTED}), records_to_keep)

    def _empty_replay(self) -> JournalReplay:
        return JournalReplay(self._recent, self._still_listed, self._time_of, self._boot)

    def _updated_replay(self) -> JournalReplay:
        is_new, records = self._file.read()
        if is_new:
            self._replay = self._empty_replay()
        for record in records:
            self._replay.add(record)
        return self._replay

    def _view(self, replay: JournalReplay, excluded: str = "") -> JournalView:
        view = replay.view(lambda process_id: process_id != excluded and self._is_live(process_id))
        return replace(view, time=self._persistent_clock.now())

    def _recent(self, record: Record) -> bool:
        return self._age(record) <= LISTING_DELAY_SECONDS

    def _still_listed(self, record: Record) -> bool:
        return self._age(record) < KEEP_SECONDS

    def _age(self, record: Record) -> float:
        return self._persistent_clock.now() - self._time_of(record)

    def _time_of(self, record: Record) -> float:
        """Return the time of a record, by the persistent clock.

        For a line of an earlier boot that lacks that time, it is calculated from the wall clock.
        A time that lies up to AHEAD_SECONDS in the future counts as now. An impossible time counts
        as long ago.
        """
        now = self._clock.monotonic()
        if record.get("boot") == self._boot and (uptime := number(record, "up")) <= now:
            return self._persistent_clock.at(uptime)
        latest = self._persistent_clock.at(now)
        if (persistent_time := number(record, "steady")) > -math.inf:
            return (
                min(persistent_time, latest)
                if persistent_time <= latest + AHEAD_SECONDS
                else -math.inf
            )
        age = self._clock.now() - number(record, "at")
        return latest - age if age > -LISTING_DELAY_SECONDS else -math.inf

    def _is_live(self, process_id: str) -> bool:
        path = self._runs / f"{process_id}.lock"
        if not process_id.isalnum() or not path.exists():
            return False
        with locked(path, wait=False) as is_free:
            return not is_free

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _state_errors(), locked(self._lock):
            yield

    def _append_locked(self, record: Record) -> None:
        with self._locked():
            self._append(record)

    def _append(self, record: Record) -> None:
        stamped = self._stamped(record)
        # First: the next boot's time must not begin before this line's.
        self._persistent_clock.save_if_due()
        self._file.append(stamped)

    def _stamped(self, record: Record) -> Record:
        uptime = self._clock.monotonic()
        stamps = {"at": self._clock.now(), "up": uptime, "boot": self._boot}
        return {**stamps, "steady": self._persistent_clock.at(uptime), **record}


@contextlib.contextmanager
def _state_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"the journal can't be used: {error}") from error
