"""Laws of the persistent clock: journal lines keep their age.

They hold for any order of boots, set clocks and crashes.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from hypothesis import example, given, strategies as st

from slurmplugins.model import hostlist
from slurmplugins.model.instance import Assignment, Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.state.journal import LISTING_DELAY_SECONDS, Journal
from slurmplugins.state.persistent_clock import SAVE_EVERY, PersistentClock
from tests.fakes.clock import START, FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR, DAY = 3600.0, 24 * 3600.0
OFFERING = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4")
BOOTED = 5.0
ROUNDING = 1e-3

steps = st.one_of(
    st.tuples(st.just("write")),
    st.tuples(st.just("keep")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 10.0, 29.0, 59.0, 119.0, 1000.0])),
    st.tuples(st.just("set_clock"), st.sampled_from([-DAY, -180.0, 180.0, DAY])),
    st.tuples(
        st.just("boot"),
        st.sampled_from([0.0, 20.0, HOUR]),
        st.sampled_from([-DAY, -HOUR, -90.0, 0.0, 90.0, HOUR, DAY]),
    ),
)


class Head:
    """A head node with a true time beside its clock."""

    def __init__(self, place: Path) -> None:
        self.place, self.clock, self.truth, self.boots = place, FakeClock(), START, 1
        self.crash()
        self.lines: dict[str, tuple[float, int, float]] = {}

    def crash(self) -> None:
        """Begin a new process."""
        self.journal = Journal(self.place, self.clock)

    def keep(self) -> None:
        PersistentClock(self.place, self.clock).save_if_due()

    def advance(self, seconds: float) -> None:
        self.truth += seconds
        self.clock.advance(seconds)

    def set_clock(self, by: float) -> None:
        self.clock.jump(by)

    def boot(self, off: float, wrong: float) -> None:
        self.truth += off
        self.boots += 1
        self.clock = FakeClock(BOOTED, boot=str(self.boots))
        self.clock.jump(self.truth + wrong - BOOTED)
        self.crash()

    def write(self) -> None:
        """Write a launch without an answer, and one with its instance."""
        number = len(self.lines)
        node = hostlist.parse(f"gpu-{number}")
        request = LaunchRequest(
            f"lost{number}", "demo", "gpu", "spot", "demo-gpu", "subnet-a", OFFERING, (node,)
        )
        self.journal.record_call(request, "c0ffee", [7])
        known = Assignment(hostlist.parse(f"cpu-{number}"), f"i-{number}", "10.0.0.1", "g5.xlarge")
        self.journal.record_launched(f"known{number}", [known])
        self.lines[f"{number}"] = self.truth, self.boots, self.clock.monotonic()

    def check(self) -> None:
        claims = Journal(self.place, self.clock).view()
        for number, (written, boot, up) in self.lines.items():
            most = self.truth - written + SAVE_EVERY * (self.boots - boot)
            least = self.clock.monotonic() - (up if boot == self.boots else BOOTED)
            age = claims.time - claims.launch_times[f"i-{number}"]
            assert least - ROUNDING <= age <= most + ROUNDING
            doubted = f"gpu-{number}" in claims.unresolved_nodes
            assert doubted or most > LISTING_DELAY_SECONDS - ROUNDING
            assert not doubted or least <= LISTING_DELAY_SECONDS + ROUNDING


@contextlib.contextmanager
def head() -> Iterator[Head]:
    with tempfile.TemporaryDirectory() as place, mock.patch("os.fsync"):
        yield Head(Path(place))


@given(st.lists(steps, max_size=25))
@example([("write",), ("advance", 10.0), ("boot", 20.0, -HOUR)])
@example([("keep",), ("advance", 29.0), ("write",), ("boot", 0.0, -HOUR)])
@example([("set_clock", 180.0), ("write",), ("boot", 20.0, 180.0)])
@example([("write",), ("boot", 0.0, DAY), ("advance", 119.0), ("advance", 10.0)])
def test_no_journal_line_ages_by_more_than_each_boot_may_add(taken: list[tuple]):
    """Check also that no unresolved launch outlasts its time.

    The head node has been up for that time.
    """
    with head() as world:
        for name, *arguments in taken:
            getattr(world, name)(*arguments)
            world.check()
