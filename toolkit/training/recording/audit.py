"""Audit whether a run trained on every sample exactly once.

    python -m toolkit.training audit RUN_DIR [RUN_DIR ...]

prints one JSON object, and exits 0 if the record has no fault:

- Every step 0..N-1 counts exactly once.
- Every epoch's samples are covered exactly once.
- The ranks say that they took the samples of their steps.

A run that moved between filesystems has a folder on each: name all of them.

Work that a hard kill made the run repeat is `repeated`: money lost, but no fault of the record.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit.training.run_folder import moved_run
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.steps import History, StepRecord
from toolkit.training.sample_order import SampleOrder, fingerprint

_ATTEMPT_FIELDS = (
    "attempt", "job_id", "restart_count", "cause", "step_start", "step_end", "nodes", "seconds",
    "cost_usd",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings of an audit."""

    ok: bool
    problems: tuple[str, ...]  # one sentence a fault, 20 at most; empty when `ok`
    steps: int
    missing: tuple[int, ...]
    duplicated: tuple[int, ...]
    repeated: tuple[int, ...]
    samples: int
    epochs_complete: int
    resumed_at: tuple[int, ...]
    attempts: tuple[Mapping[str, Any], ...]
    torn_lines: int


def audit(*run_dirs: Path) -> Audit:
    """Check the step log of the run in these folders.

    Raises FileNotFoundError when there is no run.
    """
    folders = [RunFolder(run_dir) for run_dir in run_dirs]
    for folder in folders:
        if not folder.steps.exists():
            raise FileNotFoundError(f"{folder.steps}: no such file; is this a run's folder?")
    records = moved_run.read(folders)
    history = records.history
    orders = [order for folder in folders if (order := folder.facts().get("order"))]
    order = orders[0] if orders else None
    counts = Counter(record.step for record in history.steps)
    last_step = max(counts, default=-1)
    missing = tuple(step for step in range(last_step + 1) if step not in counts)
    duplicated = tuple(sorted(step for step, count in counts.items() if count > 1))
    problems = [
        *(f"step {step} is missing" for step in missing),
        *(f"step {step} counts {counts[step]} times" for step in duplicated),
        *_range_problems(history.steps, order["size"] if order else None),
        *(_content_problems(history.steps, order) if order else ["run.json names no sample order"]),
        *_resume_problems(history),
    ]
    if any(other != order for other in orders):
        problems.insert(0, "the folders are of runs with another order of samples each")
    position = history.steps[-1].stop if history.steps else 0
    return Audit(
        ok=not problems,
        problems=tuple(problems[:20]),
        steps=len(counts),
        missing=missing[:1000],
        duplicated=duplicated[:1000],
        repeated=tuple(record.step for record in history.repeated),
        samples=position,
        epochs_complete=position // order["size"] if order else 0,
        resumed_at=tuple(
            resumption.step for resumption in history.resumptions if resumption.attempt > 0
        ),
        attempts=tuple(
            {name: getattr(record, name) for name in _ATTEMPT_FIELDS} for record in records.attempts
        ),
        torn_lines=history.torn_lines,
    )


def _range_problems(steps: Sequence[StepRecord], size: int | None) -> list[str]:
    """Return the faults in the steps' ranges of positions.

    The ranges must follow on each other from 0, none over an epoch's end.
    """
    problems = []
    expected = 0
    for record in steps:
        if record.start != expected:
            problems.append(f"step {record.step} begins at {record.start}, not at {expected}")
        if record.stop <= record.start:
            problems.append(f"step {record.step} has no samples")
        if size and record.start // size != (record.stop - 1) // size:
            problems.append(f"step {record.step} runs over the end of an epoch")
        expected = record.stop
    return problems


def _content_problems(steps: Sequence[StepRecord], order: Mapping[str, int]) -> list[str]:
    """Return the steps whose samples are not those of the order.

    The samples are those that all ranks took together.
    """
    rebuilt = SampleOrder(order["size"], 1, order["seed"])
    problems = []
    for record in steps:
        if record.samples != record.stop - record.start:
            problems.append(
                f"step {record.step}: the ranks took {record.samples} samples,"
                f" not {record.stop - record.start}"
            )
            continue
        try:
            ids = rebuilt.ids(record.start, record.stop)
        except ValueError as error:
            problems.append(f"step {record.step}: {error}")
            continue
        if fingerprint(ids) != record.fingerprint:
            problems.append(f"step {record.step}: the ranks took other samples than its own")
    return problems


def _resume_problems(history: History) -> list[str]:
    """Return the attempts that began after the last trained step."""
    steps_reached = 0
    problems = []
    trained_steps = sorted((*history.steps, *history.repeated), key=lambda record: record.attempt)
    for resumption in history.resumptions:
        earlier_steps = [
            record.step + 1 for record in trained_steps if record.attempt < resumption.attempt
        ]
        steps_reached = max(earlier_steps, default=0)
        if resumption.step > steps_reached:
            problems.append(
                f"attempt {resumption.attempt} began at step {resumption.step},"
                f" but {steps_reached} steps were trained"
            )
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns 0 when there is no fault, 1 when there is one, 2 when there is no run.
    """
    parser = argparse.ArgumentParser(prog="python -m toolkit.training audit")
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--steps", type=int, help="fail unless the run has just this many steps")
    options = parser.parse_args(arguments)
    try:
        findings = audit(*options.run_dirs)
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    report = asdict(findings)
    if options.steps is not None and findings.steps != options.steps:
        report["ok"] = False
        report["problems"] = [f"{findings.steps} steps, not {options.steps}", *findings.problems]
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0 if report["ok"] else 1
