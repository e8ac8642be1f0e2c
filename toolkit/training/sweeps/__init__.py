"""Sweeps over hyperparameters that survive the loss of their instances.

Each trial belongs to one task of a job array. A task gets a new trial only if its last one failed.
After an interruption the task continues its own trial,
from its own checkpoint. Code that knows Optuna belongs here; `Run` knows nothing of sweeps.

    with SweepTrial(space, direction="maximize") as trial:
        with Run(params=trial.params, seed=0, world=trial.world) as run:
            # Report once an epoch.
            for batch in run.batches(order, epochs):
                # `report` returns True if the trial is not worth going on with.
                if batch.begins_epoch and batch.epoch and trial.report(accuracy(), batch.epoch - 1):
                    break
                ...
            result = accuracy()
            run.finish(accuracy=result)
        trial.complete(result)
"""

from toolkit.training.sweeps.trial import SweepTrial

__all__ = ["SweepTrial"]
