"""Keep a task's trial in its run's folder, beside the sweep's storage.

`end_of_attempt` decides whether a failed trial ends. A task that its batch script
requeues goes on with its trial. So the training script only notes why it failed. The batch script
reports the failure to the sweep if the task is not requeued.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import load_json, write_json
from toolkit.training.sweeps import study as study_storage, trials

FILE = "trial.json"


def read(run_dir: Path) -> dict[str, Any]:
    """Return the noted facts, empty when there is no trial.

    Raises OSError when they can't be read.
    """
    return load_json(run_dir / FILE) or {}


def add(run_dir: Path, **facts: Any) -> None:
    """Note more facts.

    Raises OSError when the noted ones can't be read: they would be lost.
    """
    write_json(run_dir / FILE, read(run_dir) | facts)


def end_trial(attempt: Attempt, environment: Mapping[str, str] = os.environ) -> bool:
    """End the attempt's trial: its task is not requeued.

    A trial that is not over fails. If the file has a value that is not in the storage, the trial
    ends with that value.

    Returns whether the storage was updated. If not, a later task fails the trial.
    """
    try:
        facts = read(attempt.run_dir)
        if not facts:
            return False
        import optuna

        storage = study_storage.connect(study_storage.address(environment))
        study = optuna.load_study(study_name=facts["sweep"], storage=storage)
        if "value" in facts:
            trials.end_trial(
                study, facts["trial"], facts["value"], pruned=bool(facts.get("pruned"))
            )
        else:
            trials.fail_trial(study, facts["trial"], facts.get("failed") or "its task failed")
    except Exception:  # noqa: BLE001  # no failure of the record may change the job's end
        return False
    return True
