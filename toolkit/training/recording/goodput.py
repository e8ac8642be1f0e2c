"""Split the time and the money of a run into useful and lost parts.

    python -m toolkit.training goodput RUN_DIR

prints one JSON object. Every second of every attempt is in one part, and so is every dollar.

The parts are those of AI-Hypercomputer's ml-goodput-measurement (BadputType). Start-up there is
three kinds, `lost` is "wasted progress from disruption", `waiting` "infrastructure recovery".
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from toolkit.training.run_folder import pauses as pauses_file, steps
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile
from toolkit.training.run_folder.pauses import Pause
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.steps import History

PARTS = ("useful", "save", "restore", "lost", "startup", "other")
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Split:
    """The time of a run's instances by part, and the dollars.

    useful   Steps that count.
    save     Training stood still for a checkpoint.
    restore  A checkpoint was loaded.
    lost     Steps that a later attempt did again.
    startup  From the batch script's first line to the first step, less `restore`.
    other    After the last step: evaluation, the last records.
    """

    attempts: int
    seconds: Mapping[str, float]  # of the job, not times its instances
    waiting: float  # seconds between attempts: no instance, no cost
    cost_usd: Mapping[str, str]  # empty while no instance's price is known

    @property
    def goodput(self) -> float | None:
        """Return the useful share of the instances' time."""
        total = sum(self.seconds.values())
        return self.seconds["useful"] / total if total > 0 else None

    @property
    def effective(self) -> float | None:
        """Return the useful share of all time since the run began (ETTR)."""
        total = sum(self.seconds.values()) + self.waiting
        return self.seconds["useful"] / total if total > 0 else None

    def metrics(self) -> dict[str, float]:
        """Return the split as metrics of the tracking server."""
        metrics = {f"toolkit.seconds_{part}": value for part, value in self.seconds.items()}
        metrics["toolkit.seconds_waiting"] = self.waiting
        metrics |= {f"toolkit.cost_usd_{part}": float(usd) for part, usd in self.cost_usd.items()}
        ratios = {"toolkit.goodput": self.goodput, "toolkit.effective": self.effective}
        return metrics | {name: ratio for name, ratio in ratios.items() if ratio is not None}

    def as_json(self) -> dict[str, Any]:
        """Return the split and both shares as a JSON object."""
        return asdict(self) | {"goodput": self.goodput, "effective": self.effective}


def split(
    attempts: Sequence[AttemptRecord], history: History, pauses: Sequence[Pause], now: float
) -> Split:
    """Split the time of all attempts. Pure.

    An attempt that still runs is counted up to `now`.
    """
    seconds = dict.fromkeys(PARTS, 0.0)
    cost = dict.fromkeys(PARTS, Decimal(0))
    has_price = False
    waiting, last_end = 0.0, None
    for attempt in attempts:
        end = now if attempt.ended_at is None else attempt.ended_at
        attempt_seconds = _split_attempt(attempt, max(end, attempt.started_at), history, pauses)
        price = attempt.price
        for part, value in attempt_seconds.items():
            seconds[part] += value
            if price is not None:
                cost[part] += price * Decimal(repr(value)) / 3600
        has_price = has_price or price is not None
        waiting += max(0.0, attempt.started_at - last_end) if last_end is not None else 0.0
        last_end = end
    return Split(
        attempts=len(attempts),
        seconds={part: round(value, 3) for part, value in seconds.items()},
        waiting=round(waiting, 3),
        cost_usd={p: str(usd.quantize(_MICRO)) for p, usd in cost.items()} if has_price else {},
    )


def split_of_run(run_dir: Path, now: float) -> Split:
    """Return the split of the run in `run_dir`."""
    run_folder = RunFolder(run_dir)
    attempts = AttemptsFile(run_folder.attempts).attempts()
    return split(attempts, steps.read(run_folder.steps), pauses_file.read(run_folder.times), now)


def _split_attempt(
    attempt: AttemptRecord, end: float, history: History, pauses: Sequence[Pause]
) -> dict[str, float]:
    """Return the parts of one attempt, which add up to its time."""
    number = attempt.attempt
    own_pauses = [pause for pause in pauses if pause.attempt == number]
    restore = sum(pause.seconds for pause in own_pauses if pause.kind == "restore")
    training_start = next(
        (resumption.at for resumption in history.resumptions if resumption.attempt == number), end
    )
    training_start = min(max(training_start, attempt.started_at), end)
    restore = min(restore, training_start - attempt.started_at)
    seconds = dict.fromkeys(PARTS, 0.0) | {
        "restore": restore,
        "startup": training_start - attempt.started_at - restore,
    }
    saves = sorted((p.at, p.seconds) for p in own_pauses if p.kind == "save")
    step_ends = [(step.at, "useful") for step in history.steps if step.attempt == number]
    step_ends += [(step.at, "lost") for step in history.repeated if step.attempt == number]
    part_start, next_save = training_start, 0
    for part_end, part in [*sorted(step_ends), (end, "other")]:
        part_end = min(max(part_end, part_start), end)  # noqa: PLW2901  # the clocks of two instances may differ
        save_seconds = 0.0
        while next_save < len(saves) and (saves[next_save][0] <= part_end or part == "other"):
            save_seconds += saves[next_save][1]
            next_save += 1
        save_seconds = min(save_seconds, part_end - part_start)
        seconds["save"] += save_seconds
        seconds[part] += part_end - part_start - save_seconds
        part_start = part_end
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 2 when there is no run."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training goodput")
    parser.add_argument("run_dir", type=Path)
    options = parser.parse_args(arguments)
    if not RunFolder(options.run_dir).attempts.exists():
        sys.stderr.write(f"{options.run_dir}: no attempts.jsonl; is this a run's folder?\n")
        return 2
    report = split_of_run(options.run_dir, time.time()).as_json()
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0
