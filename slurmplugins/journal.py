"""What runs of resume intend and have done, so that no node ever gets two machines.

Append-only JSON lines, fsynced. Three questions are answered from it: which nodes a live run is
working on (`busy`), which machines were launched so recently that the cloud may not list them yet
(`launched`), and which machines we have decided to end (`ended`). A run is live while it holds a
lock on its own file, which the kernel releases however the run ends; the journal's own lock is
held for reading and appending only, never during a call to the cloud. Losing the journal costs
time, not money: reconcile finds machines by their tags.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import TYPE_CHECKING, Any, Final

from slurmplugins import intents
from slurmplugins.book import Book, number
from slurmplugins.errors import StateError
from slurmplugins.files import locked, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from slurmplugins.claims import Claims
    from slurmplugins.clock import Clock
    from slurmplugins.errors import CloudError
    from slurmplugins.model import Assignment, EndCause, LaunchRequest
    from slurmplugins.names import NodeName

SETTLE_SECONDS: Final = 120.0
"""How long DescribeInstances may fail to show a new machine; EC2 settles within a minute."""

KEEP_SECONDS: Final = 24 * 3600.0
"""EC2 lists ended machines for an hour; the ledger wants to know why they ended."""

COMPACT_BYTES: Final = 1024 * 1024


class Journal:
    """The file and its rules. One object per process; safe between processes and threads."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._path = directory / "journal.jsonl"
        self._lock = directory / "journal.lock"
        self._runs = directory / "runs"
        self._clock = clock
        self._boot = clock.boot()

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

    def claims(self, but: str = "") -> Claims:
        """The state of affairs now, as others than the run `but` see it."""
        with self._held():
            return self._claims(self._book(), but)

    def claim(
        self,
        run: str,
        choose: Callable[[Claims], Iterable[NodeName]],
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
        record = intents.to_record(request)
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
    ) -> frozenset[str]:
        """Condemn those machines whose node no run works on, or has since, and that have not been
        given to another node; returns their ids.

        This is the moment at which resume and who ends machines agree who has a machine.
        """
        with self._held():
            claims = self._claims(self._book())
            busy = claims.worked_on(since)
            ids = [
                item
                for item, node in wanted
                if node not in busy and claims.name(item, node) == node
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
        """Drop what is too old to matter and of no live run, once the file is large."""
        with self._held():
            try:
                if self._path.stat().st_size < COMPACT_BYTES:
                    return
            except FileNotFoundError:
                return
            kept = [
                json.dumps(item)
                for item in self._records()
                if self._age(item) < KEEP_SECONDS or self._alive(str(item.get("run")))
            ]
            write_atomically(self._path, "".join(f"{k}\n" for k in kept).encode(), mode=0o640)

    def _book(self) -> Book:
        book = Book(self._recent, self._boot)
        for record in self._records():
            with contextlib.suppress(KeyError, TypeError, ValueError):  # a damaged line
                book.add(record)
        return book

    def _claims(self, book: Book, but: str = "") -> Claims:
        return book.claims(lambda run: run != but and self._alive(run))

    def _recent(self, record: dict[str, Any]) -> bool:
        return self._age(record) <= SETTLE_SECONDS

    def _age(self, record: dict[str, Any]) -> float:
        """By the steady clock, which nobody can set; by the other one for what is from before the
        last boot.
        """
        if record.get("boot") == self._boot:
            return self._clock.monotonic() - number(record, "up")
        return self._clock.now() - number(record, "at")

    def _alive(self, run: str) -> bool:
        path = self._runs / f"{run}.lock"
        if not run.isalnum() or not path.exists():
            return False
        with locked(path, wait=False) as free:
            return not free

    def _records(self) -> Iterator[dict[str, Any]]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(f"{self._path}: {error}") from error
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the last line of a run that was killed while it wrote
            if isinstance(record, dict):
                yield record

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with _state_errors(), locked(self._lock):
            yield

    def _append_locked(self, record: dict[str, Any]) -> None:
        with self._held():
            self._append(record)

    def _append(self, record: dict[str, Any]) -> None:
        clock = self._clock
        times = {"at": clock.now(), "up": clock.monotonic(), "boot": self._boot}
        line = json.dumps({**times, **record}, separators=(",", ":")) + "\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o640)
        try:
            # A run killed in mid-write left half a line: it must not swallow this one.
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = "\n" + line
            content = line.encode()
            while content:  # a disk that fills up takes a part of it, and refuses only the rest
                content = content[os.write(descriptor, content) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _state_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"the journal can't be used: {error}") from error
