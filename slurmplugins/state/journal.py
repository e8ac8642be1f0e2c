"""What runs of resume intend and have done, so that no node ever gets two machines.

Append-only JSON lines, fsynced. Three questions are answered from it: which nodes a live run is
working on (`busy`), which machines were launched so recently that the cloud may not list them yet
(`launched`), and which machines we have decided to end (`ended`). A run is live while it holds a
lock on its own file, which the kernel releases however the run ends; the journal's own lock is
held for reading and appending only, never during a call to the cloud. Losing the journal costs
time, not money: reconcile finds machines by their tags.

A process reads each line once, and adds it up. What means nothing any more is dropped whenever the
file has doubled, so its size is bounded by machines, and not by how often they were asked for.
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
"""How long DescribeInstances may fail to show a new machine; EC2 settles within a minute."""

KEEP_SECONDS: Final = 24 * 3600.0
"""EC2 lists ended machines for an hour; the ledger wants to know why they ended."""

AHEAD_SECONDS: Final = 300.0
"""How far ahead a line may lie: it is of a moment ago then, since the steady clock was lost."""

COMPACT_BYTES: Final = 1024 * 1024
"""A file below this is quickly read."""


class Journal:
    """The file and its rules. One object per process; safe between processes and threads."""

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
        """A run of resume: its claims hold while the block runs and end with the process."""
        run = os.urandom(8).hex()
        path = self._runs / f"{run}.lock"
        with contextlib.ExitStack() as held:
            # Under the journal's lock: `sweep` must not take the file for a dead run's before it
            # is locked.
            with self._held():
                self._runs.mkdir(mode=0o750, exist_ok=True)
                held.enter_context(locked(path))
            held.callback(path.unlink, missing_ok=True)
            yield run

    def claims(self, but: str = "") -> JournalView:
        """The state of affairs now, as others than the run `but` see it."""
        with self._held():
            return self._claims(self._book(), but)

    def claim(
        self,
        run: str,
        choose: Callable[[JournalView], Iterable[NodeName]],
        *,
        settling: bool = False,
    ) -> tuple[NodeName, ...]:
        """Let `choose` see what others claim, and claim the nodes it returns, with no one in
        between. `settling`: not for the nodes' sake, but to ask about a launch they were in.
        """
        with self._held():
            book = self._book()
            nodes = tuple(choose(self._claims(book, but=run)))
            if not book.claimed(run).issuperset(nodes):
                self._append({"kind": "claim", "run": run, "nodes": nodes, "settling": settling})
            return nodes

    def release(self, run: str, nodes: Iterable[NodeName]) -> None:
        """The run is done with these: other runs may have them, and reconcile may act on them."""
        self._append_locked({"kind": "release", "run": run, "nodes": list(nodes)})

    def intend(self, request: LaunchRequest, run: str, jobs: Sequence[int]) -> float:
        """Must be on disk before the cloud is called: raises StateError when it can't be. Returns
        the moment at which it is, by the steady clock.
        """
        record = request.to_record()
        self._append_locked({"kind": "intent", "run": run, "jobs": jobs, **record})
        return self._clock.monotonic()

    def launched(self, attempt: str, assignments: Iterable[Assignment]) -> None:
        machines = [[item.node, item.instance_id, item.address, item.type] for item in assignments]
        self._append_locked({"kind": "launched", "attempt": attempt, "machines": machines})

    def failed(self, attempt: str, error: CloudError) -> None:
        """The answer to the call last intended: nothing came of it. Calls before it that got none
        stay in doubt, each as old as it is, unless this answer settles them too.
        """
        told = {"code": error.code, "slug": error.slug, "settles": error.settles}
        self._append_locked({"kind": "failed", "attempt": attempt, **told})

    def let_go(self, nodes: Sequence[NodeName], since: float) -> None:
        """Slurm had powered these nodes down at a moment of the steady clock: none of their
        machines of before is what it may ask for next, even where EC2 can't be told so now.
        """
        self._append_locked({"kind": "let-go", "nodes": nodes, "since": since})

    def condemn(self, ids: Iterable[str], cause: EndCause) -> None:
        """From here on these machines are as good as ended: no run will adopt them."""
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
        """Condemn those machines whose node no run works on, or has since, and that have not been
        given to another node; returns their ids. One that a line names which nobody understands is
        left while that is new, and unless its node is `off`.

        This is the moment at which resume and who ends machines agree who has a machine.
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
        """Remove the lock files of runs that were killed; an ended run removes its own."""
        with self._held():
            for path in self._runs.glob("*.lock"):
                if not self._alive(path.stem):
                    path.unlink(missing_ok=True)

    def compact(self) -> None:
        """Drop what is too old to matter and of no live run, once the file is large, and twice as
        large as it was then.
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
        """When it was written, in the time of `steady`. By the wall clock for a line of before the
        last boot that does not say it; now where it lies a little ahead, and long ago where it
        can't be true.
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
        self._steady.keep()  # before the line: no later boot may begin before it
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
