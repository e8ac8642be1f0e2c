"""The time that a line of a log states about itself."""

from __future__ import annotations

from datetime import datetime

import pytest

from slurmplugins.logs.line_time import NEWEST, OLDEST, time_of

NOW = 1_795_000_000.0


def test_a_line_of_our_programs_states_its_time():
    assert time_of(f'{{"at":{NOW - 5.25},"level":"info"}}', NOW) == NOW - 5.25


def test_a_line_of_slurm_states_its_local_time():
    stamp = datetime.fromtimestamp(NOW - 7.5).isoformat(timespec="milliseconds")  # noqa: DTZ006 - as Slurm writes it
    assert time_of(f"[{stamp}] error: no such node", NOW) == NOW - 7.5


@pytest.mark.parametrize(
    "text",
    [
        "Cloud-init v. 25.1 running",
        "[2026-13-45T99:99:99.000] digits that are no date",
        '{"at":"soon"}',
        "",
        "[1] x",
    ],
)
def test_a_line_without_a_time_is_of_now(text: str):
    assert time_of(text, NOW) == NOW


def test_a_time_far_from_now_is_brought_near():
    """Keep a batch within the day that a call may span."""
    assert time_of('{"at":5,', NOW) == NOW - OLDEST
    assert time_of(f'{{"at":{NOW * 2},', NOW) == NOW + NEWEST
