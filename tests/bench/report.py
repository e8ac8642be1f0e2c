"""Tables for people, JSON for machines."""

from __future__ import annotations

import os
import platform
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.contest import Figures

COLUMNS = ("", "wall s", "CPU s", "peak MB", "calls", "EC2", "refused", "other AWS", "scontrol")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, aligned."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
             for row in cells]  # fmt: skip
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def row(label: str, runs: Sequence[Figures]) -> list[str]:
    """Medians over the runs; the last run's counts."""
    last = runs[-1]
    wall = statistics.median(one.wall for one in runs)
    cpu = statistics.median(one.cpu for one in runs)
    ended = all(one.done for one in runs)
    return [
        label,
        f"{wall:.1f}" if ended else f"> {wall:.0f}, cut off at {last.machines} machines",
        f"{cpu:.2f}" if ended else "?",
        f"{last.peak_mb:.0f}" if ended else "?",
        f"{last.calls:,}",
        f"{last.ec2:,}",
        f"{last.refused:,}",
        f"{last.other_aws:,}",
        f"{last.scontrol:,}",
    ]


def ratio(ours: Sequence[Figures], peers: Sequence[Figures]) -> list[str]:
    """Ours over the peer's; none where a run was cut off."""
    if not all(one.done for one in (*ours, *peers)):
        return ["  ratio", *["?"] * (len(COLUMNS) - 1)]
    wall = _median(ours, "wall") / _median(peers, "wall")
    cpu = _median(ours, "cpu") / max(_median(peers, "cpu"), 1e-9)
    calls = ours[-1].calls / peers[-1].calls
    return ["  ratio", f"{wall:.2f}", f"{cpu:.2f}", "", f"{calls:.2f}", "", "", "", ""]


def floor(seconds: float, ours: Sequence[Figures], peers: Sequence[Figures]) -> list[list[str]]:
    """EC2's own share of the wall time, and the ratio of what each takes above it."""
    rest = [""] * (len(COLUMNS) - 2)
    rows = [["  floor: EC2's rate", f"{seconds:.1f}", *rest]]
    if all(one.done for one in (*ours, *peers)):
        mine, theirs = _median(ours, "wall") - seconds, _median(peers, "wall") - seconds
        said = f"{mine:.1f} : {theirs:.1f} = {mine / theirs:.2f}" if theirs > 0 else "?"
        rows.append(["  above the floor", said, *rest])
    return rows


def _median(runs: Sequence[Figures], name: str) -> float:
    return statistics.median(getattr(one, name) for one in runs)


def machine() -> str:
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}, load {load:.1f} at the start: read ratios, not seconds"
    )
