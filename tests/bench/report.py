"""Tables for people, JSON for programs."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.contest import Figures

COLUMNS = (
    "",
    "wall s",
    "x floor",
    "CPU s",
    "peak MB",
    "EC2 calls",
    "refused",
    "DynamoDB, Route 53",
    "scontrol",
)
BEGIN, END = "<!-- printed by the benchmark: begin -->", "<!-- printed by the benchmark: end -->"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
             for row in cells]  # fmt: skip
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def row(label: str, runs: Sequence[Figures], floor: float = 0.0) -> list[str]:
    """Return the runs' medians, and the last run's counts."""
    last = runs[-1]
    wall = _median(runs, "wall")
    ended = all(one.done for one in runs)
    short = any(one.short for one in runs)
    took = f"{wall:.1f}" if ended else f"> {wall:.0f}, cut off at {last.instances} instances"
    return [
        label,
        f"{took}, given up at {last.instances} instances" if short else took,
        f"{wall / floor:.2f}" if ended and floor and not short else "",
        f"{_median(runs, 'cpu'):.1f}" if ended else "?",
        f"{last.peak_mb:.0f}" if ended else "?",
        f"{last.ec2:,}",
        f"{last.refused:,}",
        f"{last.other_aws:,}",
        f"{last.scontrol:,}",
    ]


def ratios(
    ours: Mapping[str, Sequence[Figures]], peers: Mapping[str, Sequence[Figures]]
) -> list[list[str]]:
    """Return our wall times over each peer's.

    A run that lacks instances has no ratio.
    """
    return [
        [label, *(_over(mine, theirs) for theirs in peers.values())] for label, mine in ours.items()
    ]


def _over(ours: Sequence[Figures], peers: Sequence[Figures]) -> str:
    if not all(one.done and not one.short for one in (*ours, *peers)):
        return "?"
    return f"{_median(ours, 'wall') / _median(peers, 'wall'):.2f}"


def replaced(document: str, printed: str) -> str:
    """Replace the text between the document's two marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no {BEGIN} … {END}")
    return f"{before}{begin}\n\n{printed.strip()}\n\n{end}{after}"


def _median(runs: Sequence[Figures], name: str) -> float:
    return statistics.median(getattr(one, name) for one in runs)


def machine() -> str:
    """Return the commit, the day and the machine of a run."""
    load = os.getloadavg()[0]
    describe = ("git", "describe", "--always", "--dirty", "--exclude=*")
    commit = subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    return (
        f"Commit {commit}, {datetime.now(UTC):%Y-%m-%d}, "
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}, load {load:.1f} at the start: read ratios, not seconds"
    )
