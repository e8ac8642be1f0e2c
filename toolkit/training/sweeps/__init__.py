"""Sweeps over hyperparameters that survive losing their machines.

A trial is one task of a job array. It belongs to its task for good: a task that comes back after an
eviction goes on with its own trial, from its own checkpoint.

    with SweepTrial(space, direction="maximize") as trial:
        with Run(params=trial.params, seed=0, world=trial.world) as run:
            for batch in run.batches(order, epochs):
                # True: not worth going on with
                if batch.begins_epoch and batch.epoch and trial.report(accuracy(), batch.epoch - 1):
                    break
                ...
            result = accuracy()
            run.finish(accuracy=result)
        trial.complete(result)
"""

from toolkit.training.sweeps.trial import SweepTrial

__all__ = ["SweepTrial"]
