"""Reports about missing ranks, with their numbers and lines."""

import sys
import threading
from dataclasses import dataclass, field

import pytest

from toolkit.training.attempt import exception_verdict
from toolkit.training.distributed.process_group import Solo
from toolkit.training.distributed.straggler_report import (
    RankStatus,
    RankWatch,
    find_missing_ranks,
    place_of,
)
from toolkit.training.run import Run


def rank(number, met, waits=0.0, place="train.py:7", *, own=False):
    return RankStatus(number, met, waits, place, own)


def test_nobody_is_missing_where_nobody_waits_for_long_or_all_have_come():
    assert find_missing_ranks([rank(0, 4, 59), rank(1, 3)], 60) is None
    assert find_missing_ranks([rank(0, 4, 90), rank(1, 4, 90), rank(2, 5)], 60) is None


def test_those_that_did_not_come_are_named_with_where_they_are():
    found = find_missing_ranks(
        [rank(0, 3, place="eval.py:9"), *(rank(n, 4, 60 + n) for n in (1, 2))], 60
    )
    assert found.text == (
        "2 of 3 ranks have waited 62 s (rank 1 at train.py:7); missing: rank 0 at eval.py:9"
    )
    many = find_missing_ranks([rank(0, 9, 60), *(rank(n, 1) for n in range(1, 9))], 60)
    assert many.text.endswith("rank 4 at train.py:7 and 4 more")


@dataclass
class Store:
    """The process group's store, shared by all ranks."""

    found: dict = field(default_factory=dict)

    def set(self, key, value):
        self.found[key] = value.encode()

    def get(self, key):
        return self.found[key]

    def multi_get(self, keys):
        return [self.found[key] for key in keys]

    def check(self, keys):
        return all(key in self.found for key in keys)


class Ranks:
    """Two ranks on a clock that a test moves.

    Both are on the main thread, so they are at the same line.
    """

    def __init__(self) -> None:
        self.now, self.said, store = 1000.0, [], Store()
        self.both = [
            RankWatch(
                store, number, 2, timeout=600, log_line=self.said.append, clock=lambda: self.now
            )
            for number in (0, 1)
        ]

    def look(self):
        for watch in (*self.both[::-1], self.both[1]):
            looking = threading.Thread(target=watch.exchange_status)
            looking.start()
            looking.join()


def late(ranks, seconds, *, missing):
    """Let one rank wait for these seconds, then fail its collective."""
    for watch in ranks.both:
        watch.count_collective()
    waiting = ranks.both[1 - missing]
    waiting.count_collective()
    with waiting.mark_waiting():
        ranks.now += seconds
        ranks.look()
        ranks.now += 10
        ranks.look()
        raise RuntimeError("Timed out waiting 600000ms for recv operation to complete")


@pytest.mark.parametrize("missing", [0, 1])
def test_a_wait_that_takes_a_minute_is_logged_once_and_its_error_says_for_whom(missing):
    ranks = Ranks()
    with pytest.raises(RuntimeError, match=f"; 1 of 2 ranks .* missing: rank {missing} at") as end:
        late(ranks, 60, missing=missing)
    (said,) = ranks.said
    assert f"missing: rank {missing} at" in said
    assert "test_straggler_report.py" in said
    word = exception_verdict.verdict_of(end.value, 3)
    assert (word.verdict, word.cause) == ("resume", "peer-lost")
    assert f"rank {missing} at" in word.detail


def test_an_error_that_comes_at_once_is_left_as_it_is():
    ranks = Ranks()
    with pytest.raises(RuntimeError, match=r"complete$"):
        late(ranks, 1, missing=0)
    assert ranks.said == []


def test_what_was_said_of_one_wait_is_not_said_of_the_next():
    ranks = Ranks()
    with pytest.raises(RuntimeError, match="missing: rank"):
        late(ranks, 60, missing=0)
    ranks.both[1].count_collective()
    with pytest.raises(RuntimeError, match=r"^reset$"), ranks.both[1].mark_waiting():
        raise RuntimeError("reset")


def test_a_rank_inside_the_toolkit_is_at_the_line_that_called_it_and_is_expected(
    attempt_of, json_codec, part, memory_tracker, monkeypatch
):
    """Report nothing about a save that takes minutes."""
    seen = []

    def stage(parts, world, *, copy):
        seen.append(place_of(sys._getframe()))
        return {}

    monkeypatch.setattr(json_codec, "stage", stage)
    run = Run(
        params={}, seed=0, attempt=attempt_of(), world=Solo(), codec=json_codec,
        tracker=memory_tracker,
    )  # fmt: skip
    with run:
        run.resume(model=part())
        run.finish()
    ((place, own),) = seen
    assert own
    assert "distributed/test_straggler_report.py:" in place
    assert place.endswith(
        "(test_a_rank_inside_the_toolkit_is_at_the_line_that_called_it_and_is_expected)"
    )
    assert place_of(sys._getframe())[1] is False
    assert find_missing_ranks([rank(0, 3, own=True), rank(1, 4, 60)], 60).is_expected
