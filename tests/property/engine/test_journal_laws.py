"""Laws of the journal's view.

It says the same after a read in parts, and after compaction.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from hypothesis import given, strategies as st

from slurmplugins.cloud import error_codes
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Assignment, EndCause, Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.state import journal
from slurmplugins.state.journal import Journal
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.state.journal_view import JournalView

G = hostlist.expand("gpu-[001-006]")
OFFERING = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4")

some_nodes = st.lists(st.sampled_from(G), min_size=1, max_size=4, unique=True)
some_ids = st.lists(st.sampled_from([f"i-{n}" for n in range(8)]), min_size=1, max_size=4)
runs = st.sampled_from(["one", "two", "killed"])
attempts = st.sampled_from(["a1", "a2", "a3"])
errors = st.sampled_from(["InsufficientInstanceCapacity", "RequestLimitExceeded"])
steps = st.one_of(
    st.tuples(st.just("claim"), runs, some_nodes, st.booleans()),
    st.tuples(st.just("release"), runs, some_nodes),
    st.tuples(st.just("intend"), runs, attempts, some_nodes),
    st.tuples(st.just("failed"), attempts, errors),
    st.tuples(st.just("launched"), attempts, some_nodes, some_ids),
    st.tuples(st.just("let_go"), some_nodes, st.sampled_from([0.0, 60.0, 200.0])),
    st.tuples(st.just("condemn"), some_ids),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 30.0, 119.0, 1000.0])),
    st.tuples(st.just("compact")),
    st.tuples(st.just("torn")),
)


class Writer:
    """A journal and the programs that write it.

    Two of its runs are live, and one was killed.
    """

    def __init__(self, place: Path, stack: contextlib.ExitStack) -> None:
        self.path, self.clock = place, FakeClock()
        self.journal = Journal(place, self.clock)
        self.runs = {
            name: stack.enter_context(self.journal.resume_process()) for name in ("one", "two")
        }
        self.runs["killed"] = "c0ffee"

    def anew(self) -> Journal:
        return Journal(self.path, self.clock)

    def claim(self, run: str, nodes: list[hostlist.NodeName], settling: bool) -> None:
        self.journal.claim(self.runs[run], lambda _: nodes, to_resolve=settling)

    def release(self, run: str, nodes: list[hostlist.NodeName]) -> None:
        self.journal.release(self.runs[run], nodes)

    def intend(self, run: str, attempt: str, nodes: list[hostlist.NodeName]) -> None:
        request = LaunchRequest(
            attempt, "demo", "gpu", "spot", "demo-gpu", "subnet-a", OFFERING, tuple(nodes)
        )
        self.journal.record_call(request, self.runs[run], [7])

    def failed(self, attempt: str, code: str) -> None:
        self.journal.record_failed(attempt, error_codes.error(code, "no"))

    def launched(self, attempt: str, nodes: list[hostlist.NodeName], ids: list[str]) -> None:
        machines = zip(nodes, ids, strict=False)
        self.journal.record_launched(
            attempt, [Assignment(n, i, "10.0.0.1", "g5") for n, i in machines]
        )

    def let_go(self, nodes: list[hostlist.NodeName], ago: float) -> None:
        self.journal.record_powered_down(nodes, self.clock.monotonic() - ago)

    def condemn(self, ids: list[str]) -> None:
        self.journal.mark_terminating(ids, EndCause.SUSPEND)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def compact(self) -> None:
        self.anew().compact()

    def torn(self) -> None:
        with (self.path / "journal.jsonl").open("a") as file:
            file.write('{"kind": "ended", "ids": ["i-1"')


@contextlib.contextmanager
def writer() -> Iterator[Writer]:
    with (
        tempfile.TemporaryDirectory() as place,
        contextlib.ExitStack() as stack,
        mock.patch.object(journal, "COMPACT_BYTES", 0),
        mock.patch("os.fsync"),
    ):
        yield Writer(Path(place), stack)


def of_what_lives(claims: JournalView) -> JournalView:
    return dataclasses.replace(
        claims, powered_down_ids=claims.powered_down_ids - claims.termination_causes.keys()
    )


@given(st.lists(steps, max_size=30))
def test_a_journal_read_in_parts_says_the_same_as_one_read_whole(taken: list[tuple]):
    with writer() as world:
        reader = world.anew()
        for name, *arguments in taken:
            getattr(world, name)(*arguments)
            assert reader.view() == world.anew().view(), name


@given(st.lists(steps, max_size=30), st.sampled_from(["", "one", "two"]))
def test_compaction_drops_no_line_of_a_live_instance(taken: list[tuple], but: str):
    with writer() as world:
        for name, *arguments in taken:
            getattr(world, name)(*arguments)
        before = world.journal.view(excluded=world.runs.get(but, ""))
        world.compact()
        after = world.journal.view(excluded=world.runs.get(but, ""))
        assert of_what_lives(after) == of_what_lives(before)
