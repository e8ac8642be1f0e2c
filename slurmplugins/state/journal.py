"""The journal of launches and terminations, so that no node ever gets two instances.

A run is one process of ResumeProgram. The file holds JSON lines, append-only and fsynced. It
answers three questions.

- `busy`: on which nodes is a live run working?
- `launched`: which instances were launched so recently that EC2 may not list them yet?
- `ended`: which instances have we decided to terminate?

A run is live while it holds a lock on its own file. The kernel releases that lock however the run
ends. The journal's own lock is held for reading and appending only, never during a call to EC2.
Losing the journal costs time, not money: reconcile finds instances by their tags.

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
from slurmplugins.state.journal_view import Book, number
from slurmplugins.state.persistent_clock import Steady
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

SETTLE_SECONDS: Final = 120.0
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
        self._steady = Steady(directory, clock)
        self._sum = self._empty()

    @contextlib.contextmanager
    def run(self) -> Iterator[str]:
        """Begin a run, and yield its id.

        Its claims hold while the block runs, and end with the process.
        """
        run = os.urandom(8).hex()
        path = self._runs / f"{run}.lock"
        with contextlib.ExitStack() as held:
            # Under the journal's lock: before the file is locked, `sweep` must not see it and
            # take it for a dead run's.
            with self._held():
                self._runs.mkdir(mode=0o750, exist_ok=True)
                held.enter_context(locked(path))
            held.callback(path.unlink, missing_ok=True)
            yield run

    def claims(self, but: str = "") -> JournalView:
        """Return the journal's view now, without the claims of the run `but`."""
        with self._held():
            return self._claims(self._book(), but)

    def claim(
        self,
        run: str,
        choose: Callable[[JournalView], Iterable[NodeName]],
        *,
        settling: bool = False,
    ) -> tuple[NodeName, ...]:
        """Claim the nodes that `choose` returns, and return them.

        `choose` sees the other runs' claims. No other process can claim nodes in between.
        With `settling`, the run claims the nodes only to look up the outcome of their launch.
        """
        with self._held():
            book = self._book()
            nodes = tuple(choose(self._claims(book, but=run)))
            if not book.claimed(run).issuperset(nodes):
                self._append({"kind": "claim", "run": run, "nodes": nodes, "settling": settling})
            return nodes

    def release(self, run: str, nodes: Iterable[NodeName]) -> None:
        """Release the run's claims on these nodes.

        Other runs may claim them then, and reconcile may act on them.
        """
        self._append_locked({"kind": "release", "run": run, "nodes": list(nodes)})

    def intend(self, request: LaunchRequest, run: str, jobs: Sequence[int]) -> float:
        """Record a launch request, before the call to EC2.

        Returns the time by the monotonic clock at which it was on disk. Raises StateError if it
        can't be written: EC2 must not be called then.
        """
        record = request.to_record()
        self._append_locked({"kind": "intent", "run": run, "jobs": jobs, **record})
        return self._clock.monotonic()

    def launched(self, attempt: str, assignments: Iterable[Assignment]) -> None:
        """Record a launch's instances and their nodes."""
        machines = [[item.node, item.instance_id, item.address, item.type] for item in assignments]
        self._append_locked({"kind": "launched", "attempt": attempt, "machines": machines})

    def failed(self, attempt: str, error: CloudError) -> None:
        """Record that the last intended call of this attempt launched no instance.

        Earlier calls without an answer keep their unknown outcome and their age. If the error
        `settles` them too, their outcome is known.
        """
        told = {"code": error.code, "slug": error.slug, "settles": error.settles}
        self._append_locked({"kind": "failed", "attempt": attempt, **told})

    def let_go(self, nodes: Sequence[NodeName], since: float) -> None:
        """Record that Slurm powered these nodes down at `since`.

        `since` is a time of the monotonic clock. Instances that the nodes had before must
        not serve Slurm's next request for them, even if they can't be terminated now.
        """
        self._append_locked({"kind": "let-go", "nodes": nodes, "since": since})

    def condemn(self, ids: Iterable[str], cause: EndCause) -> None:
        """Record that these instances will be terminated.

        From now on no run adopts them. Safe to repeat.
        """
        with self._held():
            known = self._claims(self._book()).ended
            fresh = [item for item in ids if item not in known]
            if fresh:
                self._append({"kind": "ended", "ids": fresh, "cause": cause})

    def condemn_idle(
        self,
        wanted: Iterable[tuple[str, NodeName | None]],
        cause: EndCause,
        since: float = math.inf,
        off: Collection[NodeName] = frozenset(),
    ) -> frozenset[str]:
        """Record that idle instances will be terminated; return their ids.

        `wanted` holds pairs of an instance and its node. Three kinds of instances are left alone.

        - A run works on the node, or has worked on it after `since` (monotonic clock).
        - The instance was given to another node.
        - An unreadable line names it, and the line is recent or the node is not in `off`.

        In this step resume and the programs that terminate agree on each instance: only one of
        them gets it.
        """
        with self._held():
            claims = self._claims(self._book())
            busy = claims.worked_on(since)
            ids = [
                item
                for item, node in wanted
                if node not in busy
                and claims.name(item, node) == node
                and item not in (claims.riddles if node in off else claims.strange)
            ]
            fresh = [item for item in ids if item not in claims.ended]
            if fresh:
                self._append({"kind": "ended", "ids": fresh, "cause": cause})
            return frozenset(ids)

    def sweep(self) -> None:
        """Remove the lock files of killed runs.

        A run that ends normally removes its own file.
        """
        with self._held():
            for path in self._runs.glob("*.lock"):
                if not self._alive(path.stem):
                    path.unlink(missing_ok=True)

    def compact(self) -> None:
        """Drop old lines that belong to no live run.

        It does so only if the file is large, and twice as large as after the last time.
        """
        with self._held():
            if self._file.size() < max(COMPACT_BYTES, 2 * self._book().compacted):
                return
            _, records = JournalFile(self._path).read()
            kept = journal_file.kept(records, self._recent, self._young, self._alive)
            self._file.rewrite(self._stamped({"kind": journal_file.COMPACTED}), kept)

    def _empty(self) -> Book:
        return Book(self._recent, self._young, self._moment, self._boot)

    def _book(self) -> Book:
        anew, records = self._file.read()
        if anew:
            self._sum = self._empty()
        for record in records:
            self._sum.add(record)
        return self._sum

    def _claims(self, book: Book, but: str = "") -> JournalView:
        found = book.claims(lambda run: run != but and self._alive(run))
        return replace(found, at=self._steady.now())

    def _recent(self, record: Record) -> bool:
        return self._age(record) <= SETTLE_SECONDS

    def _young(self, record: Record) -> bool:
        return self._age(record) < KEEP_SECONDS

    def _age(self, record: Record) -> float:
        return self._steady.now() - self._moment(record)

    def _moment(self, record: Record) -> float:
        """Return the time of a record, by the persistent clock.

        For a line of an earlier boot that lacks that time, it is calculated from the wall clock.
        A time that lies up to AHEAD_SECONDS in the future counts as now. An impossible time counts
        as long ago.
        """
        now = self._clock.monotonic()
        if record.get("boot") == self._boot and (up := number(record, "up")) <= now:
            return self._steady.at(up)
        latest = self._steady.at(now)
        if (written := number(record, "steady")) > -math.inf:
            return min(written, latest) if written <= latest + AHEAD_SECONDS else -math.inf
        age = self._clock.now() - number(record, "at")
        return latest - age if age > -SETTLE_SECONDS else -math.inf

    def _alive(self, run: str) -> bool:
        path = self._runs / f"{run}.lock"
        if not run.isalnum() or not path.exists():
            return False
        with locked(path, wait=False) as free:
            return not free

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with _state_errors(), locked(self._lock):
            yield

    def _append_locked(self, record: Record) -> None:
        with self._held():
            self._append(record)

    def _append(self, record: Record) -> None:
        stamped = self._stamped(record)
        self._steady.keep()  # first: the next boot's time must not begin before this line's
        self._file.append(stamped)

    def _stamped(self, record: Record) -> Record:
        up = self._clock.monotonic()
        when = {"at": self._clock.now(), "up": up, "boot": self._boot}
        return {**when, "steady": self._steady.at(up), **record}


@contextlib.contextmanager
def _state_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"the journal can't be used: {error}") from error
