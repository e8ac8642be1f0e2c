"""The law of records: no attempt is missed, and the later page has its end.

Whatever slurmdbd, the head's clock, kills and sizes do between two runs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings, strategies as st

from slurmplugins.head import sacct_windows
from slurmplugins.head.sacct_pages import PageWriter
from slurmplugins.head.sacct_windows import MARGIN, Moment, Place
from slurmplugins.model import records
from slurmplugins.slurm import sacct
from tests.fakes.slurmdbd import FakeAccounting, FakeRecordStore, Row

START = sacct_windows.FIRST + 40 * 86_400


class KilledError(Exception):
    """The program's end by kill -9."""


@dataclass
class Head:
    """A head with its slurmctld, its clock, and the program's file."""

    wall: int = START
    up: int = 1000
    boot: int = 1
    accounting: FakeAccounting = field(default_factory=FakeAccounting)
    store: FakeRecordStore = field(default_factory=FakeRecordStore)
    place: Place = field(default_factory=Place)
    late_rows: dict[int, Row] = field(default_factory=dict)
    keys: int = 0
    steps: int = 10**9

    def step(self) -> None:
        """Be killed at one of the program's writes."""
        self.steps -= 1
        if self.steps < 0:
            raise KilledError

    def save(self, place: Place) -> None:
        self.step()
        self.place = sacct_windows.from_json(place.to_json())
        self.step()

    def add(self, key: str, body: bytes) -> bool:
        self.step()
        return self.store.add(key, body)

    def pass_time(self, seconds: int) -> None:
        self.wall += seconds
        self.up += seconds

    def begin_job(self) -> None:
        self.keys += 1
        self.write(Row(self.keys, 100 + self.keys, self.wall))

    def end_job(self, which: int, set_back: int) -> None:
        """End a running job, perhaps before what was read."""
        running = [row for row in self.all_rows().values() if not row.end]
        if running:
            row = running[which % len(running)]
            end = max(row.eligible, self.wall - set_back)
            self.write(replace(row, end=end, state="COMPLETED"))

    def write(self, row: Row) -> None:
        """Send a row to slurmdbd, or keep it while slurmdbd is away."""
        rows = self.accounting.rows if self.accounting.settled else self.late_rows
        rows[row.key] = row

    def all_rows(self) -> dict[int, Row]:
        return {**self.accounting.rows, **self.late_rows}

    def slurmdbd(self, is_there: bool) -> None:
        if is_there:
            self.accounting.rows |= self.late_rows
            self.late_rows = {}
        self.accounting.settled = is_there

    def run(self, steps: int) -> None:
        self.steps = steps
        writer = PageWriter("demo", self.accounting, self, self.save)
        with contextlib.suppress(KilledError):
            writer.run(self.place, Moment(self.wall, self.up, str(self.boot)))

    def read_rows(self) -> dict[str, tuple[str, str]]:
        """Return each attempt's job and end; the later page wins."""
        rows = {}
        for body in self.store.objects.values():
            header, text = records.unpack(body)
            token = header["delimiter"][1:-1]
            for row in sacct.rows(text, header["fields"], token):
                rows[row["DBIndex"]] = (row["JobIDRaw"], row["End"])
        return rows


HOUR, DAY = 3600, 86_400
EVENTS = (
    *(("pass", seconds) for seconds in (1, 600, HOUR, 3 * HOUR, 2 * DAY, 50 * DAY)),
    *(("begin", 0),) * 3,
    *(("end", set_back) for set_back in (0, 0, 600, 5 * HOUR, 30 * DAY)),
    *(("slurmdbd", is_there) for is_there in (0, 0, 1)),
    *(("run", steps) for steps in (0, 1, 2, 3, 5)),
    *(("run", 10**9),) * 3,
    ("boot", 60),
    *(("set clock", seconds) for seconds in (-3 * DAY, -3 * HOUR, -600, HOUR, 5 * DAY)),
    *(("size", rows) for rows in (1, 2, 4)),
)
FULL_RUN = ("run", 10**9)
SHORT_JOB = (("begin", 0), ("end", 0))
stories = st.lists(st.sampled_from(EVENTS), min_size=15, max_size=60)


def play(head: Head, what: str, amount: int) -> None:
    match what:
        case "pass":
            head.pass_time(amount)
        case "begin":
            head.begin_job()
        case "end":
            head.end_job(amount, amount)
        case "slurmdbd":
            head.slurmdbd(bool(amount))
        case "run":
            head.run(amount)
        case "boot":
            head.boot += 1
            head.up = 0
            head.pass_time(amount)
        case "set clock":
            # Once between two runs: the run sees the sum of all changes.
            head.run(10**9)
            head.wall = max(head.wall + amount, START)
        case "size":
            head.accounting.most_rows = amount


# Stories that chance seldom tells: each fails without one of the program's rules.
@example([("pass", 2 * DAY), FULL_RUN, ("set clock", -3 * DAY), *SHORT_JOB, ("pass", 3 * HOUR)])
@example(
    [
        *[("pass", 2 * DAY), FULL_RUN, ("slurmdbd", 0), ("set clock", -3 * DAY), *SHORT_JOB],
        *[FULL_RUN, ("pass", 3 * HOUR)],
    ]
)
@example([("begin", 0), ("pass", 2 * DAY), FULL_RUN, ("end", 2 * DAY), ("pass", 1)])
@example([("pass", 2 * DAY), ("slurmdbd", 0), *SHORT_JOB, FULL_RUN, ("pass", 3 * HOUR), FULL_RUN])
@example([("begin", 0), ("set clock", -3 * DAY)])
# Where two windows meet, and where they would if there were a second between them.
@example([("pass", 63 * HOUR), *SHORT_JOB, ("pass", 9), *SHORT_JOB, ("pass", 50 * DAY)])
@settings(max_examples=150)
@given(stories)
def test_no_attempt_is_missed_and_each_has_its_end(story):
    head = Head()
    for what, amount in story:
        play(head, what, amount)
    head.slurmdbd(is_there=True)
    head.accounting.most_rows = 10**9
    head.pass_time(1)
    head.run(10**9)
    expected = {
        str(row.key): (str(row.job), str(row.end) if row.end else "Unknown")
        for row in head.all_rows().values()
    }
    assert head.read_rows() == expected


def test_a_run_without_news_reads_one_window():
    """Ask slurmdbd once in a run, and not for old time."""
    head = Head()
    head.run(10**9)
    head.accounting.calls.clear()
    head.pass_time(1800)
    head.run(10**9)
    assert head.accounting.calls == [(START - MARGIN, START + 1800 + sacct_windows.AHEAD)]


@pytest.mark.parametrize("most_rows", [30, 60])
def test_windows_shrink_to_what_sacct_can_read_and_grow_again(most_rows):
    head = Head()
    for number in range(1, 100):
        moment = START - 86_400 + number * 60
        head.accounting.rows[number] = Row(number, number, moment, moment + 5)
    head.accounting.most_rows = most_rows
    head.run(10**9)
    assert len(head.read_rows()) == 99
    assert len(head.accounting.calls) < 200
    assert head.place.span > MARGIN
