"""Print the state of a sweep as one JSON object.

    python -m toolkit.training sweep-status NAME [--best N] [--settle [--dry-run]]

`--settle` fails the trials whose tasks are gone. Every task of the sweep does so too when it
starts. Exits 2 when there is no sweep of that name, 3 when the storage does not answer.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from toolkit.training.sweeps import array_tasks, study as study_storage, trials
from toolkit.training.sweeps.trials import TrialState

NO_SWEEP, NO_STORAGE = 2, 3


def best(states: Sequence[TrialState], *, maximize: bool, count: int) -> list[TrialState]:
    """Return the best complete trials, the best first."""
    done = [one for one in states if one.state == "complete" and one.value is not None]
    return sorted(done, key=lambda one: one.value or 0.0, reverse=maximize)[:count]


def of(
    study: Any, live: frozenset[str] | None, now: float, *, count: int, settle: bool, dry_run: bool
) -> dict[str, Any]:
    """Return the state of a sweep.

    `live` is None when Slurm does not answer: then no task counts as gone.
    """
    found = trials.states(study)
    lost = [] if live is None else trials.gone(found, live, now)
    settled = lost if dry_run else trials.give_up(study, lost) if settle else []
    if settled and not dry_run:
        found = trials.states(study)
        lost = []
    maximize = study.direction.name == "MAXIMIZE"
    return {
        "sweep": study.study_name,
        "direction": study.direction.name.lower(),
        "counts": dict(Counter(one.state for one in found)),
        "best": [asdict(one) for one in best(found, maximize=maximize, count=count)],
        "running": [asdict(one) for one in found if one.state == "running"],
        "gone": [one.number for one in lost],
        "settled": [one.number for one in settled] if settle else [],
        "trials": len(found),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training sweep-status")
    parser.add_argument("name")
    parser.add_argument("--best", type=int, default=5)
    parser.add_argument("--settle", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    try:
        storage = study_storage.connect(study_storage.address())
    except study_storage.NoStorage as error:
        sys.stderr.write(f"{error}\n")
        return NO_STORAGE
    import optuna

    try:
        study = optuna.load_study(study_name=options.name, storage=storage)
    except KeyError:
        sys.stderr.write(f"no sweep is called {options.name!r}\n")
        return NO_SWEEP
    now = time.time()
    answer = of(
        study,
        array_tasks.tasks(),
        now,
        count=options.best,
        settle=options.settle,
        dry_run=options.dry_run,
    )
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0
