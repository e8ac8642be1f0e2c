"""Print the state of a sweep as one JSON object.

    python -m toolkit.training sweep-status NAME [--best N] [--settle [--dry-run]]

With `--settle`, it fails trials that are silent for three minutes and whose task left Slurm's
queue. Each task that starts does the same. Exits 2 when there is no sweep of
that name, 3 when the storage does not answer.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from toolkit.training.errors import NoStorage
from toolkit.training.sweeps import array_tasks, study as study_storage, trials
from toolkit.training.sweeps.trials import TrialState

NO_SWEEP, NO_STORAGE = 2, 3


def best(states: Sequence[TrialState], *, maximize: bool, count: int) -> list[TrialState]:
    """Return the best complete trials, the best first."""
    complete_trials = [
        trial for trial in states if trial.state == "complete" and trial.value is not None
    ]
    return sorted(complete_trials, key=lambda trial: trial.value or 0.0, reverse=maximize)[:count]


def sweep_state(
    study: Any,
    queued_tasks: frozenset[str] | None,
    now: float,
    *,
    count: int,
    fail_gone: bool,
    dry_run: bool,
) -> dict[str, Any]:
    """Return the state of a sweep.

    `queued_tasks` is None when Slurm does not answer: then no task counts as gone.
    """
    trial_states = trials.states(study)
    gone_trials = (
        [] if queued_tasks is None else trials.gone_trials(trial_states, queued_tasks, now)
    )
    failed_trials = (
        gone_trials if dry_run else trials.fail_gone(study, gone_trials) if fail_gone else []
    )
    if failed_trials and not dry_run:
        trial_states = trials.states(study)
        gone_trials = []
    maximize = study.direction.name == "MAXIMIZE"
    return {
        "sweep": study.study_name,
        "direction": study.direction.name.lower(),
        "counts": dict(Counter(trial.state for trial in trial_states)),
        "best": [asdict(trial) for trial in best(trial_states, maximize=maximize, count=count)],
        "running": [asdict(trial) for trial in trial_states if trial.state == "running"],
        "gone": [trial.number for trial in gone_trials],
        "settled": [trial.number for trial in failed_trials] if fail_gone else [],
        "trials": len(trial_states),
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
    except NoStorage as error:
        sys.stderr.write(f"{error}\n")
        return NO_STORAGE
    import optuna

    try:
        study = optuna.load_study(study_name=options.name, storage=storage)
    except KeyError:
        sys.stderr.write(f"no sweep is called {options.name!r}\n")
        return NO_SWEEP
    now = time.time()
    state = sweep_state(
        study,
        array_tasks.queued_tasks(),
        now,
        count=options.best,
        fail_gone=options.settle,
        dry_run=options.dry_run,
    )
    sys.stdout.write(json.dumps(state) + "\n")
    return 0
