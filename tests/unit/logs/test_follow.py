"""Following: each line once, late ones too."""

from __future__ import annotations

from itertools import islice

from toolkit.logs.follow import OVERLAP, follow
from toolkit.logs.log_group import Line, Stream


class FakeGroup:
    """A group that has more lines at each read."""

    def __init__(self, *reads: list[Line]) -> None:
        self.reads = list(reads)
        self.begins: list[float] = []

    def lines(self, streams, since):
        del streams
        self.begins.append(since)
        return iter(self.reads.pop(0))


def line(name: str, at: float) -> Line:
    return Line(name, at, "gpu-001", "i-1", "slurmd", name)


def test_a_line_is_printed_once_also_if_it_comes_late():
    early, late, new = line("a", 1000.0), line("b", 990.0), line("c", 1001.0)
    group = FakeGroup([early], [late, early], [], [late, early, new])
    slept: list[float] = []
    found = follow(group, lambda: [Stream("gpu-001", "i-1", 0.0)], 900.0, slept.append)
    assert [item.text for item in islice(found, 3)] == ["a", "b", "c"]
    assert group.begins == [900.0, 1000.0 - OVERLAP, 1000.0 - OVERLAP, 1000.0 - OVERLAP]
    assert len(slept) == 3
