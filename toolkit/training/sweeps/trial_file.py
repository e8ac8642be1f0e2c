"""What a task keeps of its trial in its run's folder, beside what the sweep's storage has.

Whether a trial that failed is over is said by who judges its task. One that its batch script brings
back goes on with its trial, so the script inside only notes why it failed; the batch script tells
the sweep where the task does not come back.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import find_json, write_json
from toolkit.training.sweeps import study as study_storage, trials

FILE = "trial.json"


def read(run_dir: Path) -> dict[str, Any]:
    """What is noted; empty where there is no trial. OSError where that can't be found out."""
    return find_json(run_dir / FILE) or {}


def add(run_dir: Path, **facts: Any) -> None:
    """Note more of it. OSError where what is noted can't be read: it would be lost."""
    write_json(run_dir / FILE, read(run_dir) | facts)


def tell_over(attempt: Attempt, environment: Mapping[str, str] = os.environ) -> bool:
    """The attempt's task does not come back: its trial, if it has one that is not over, failed. One
    that has a value which the sweep has not heard ends with that.

    Whether the sweep heard it; a trial that it did not hear of is given up by a later task.
    """
    try:
        found = read(attempt.run_dir)
        if not found:
            return False
        import optuna

        storage = study_storage.connect(study_storage.address(environment))
        study = optuna.load_study(study_name=found["sweep"], storage=storage)
        if "value" in found:
            trials.tell(study, found["trial"], found["value"], pruned=bool(found.get("pruned")))
        else:
            trials.fail(study, found["trial"], found.get("failed") or "its task failed")
    except Exception:  # noqa: BLE001  # no failure of the record may change the job's end
        return False
    return True
