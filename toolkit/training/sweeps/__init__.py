"""Sweeps over hyperparameters that survive losing their machines.

A trial is one task of a job array. It belongs to its task for good: a task that comes back after an
eviction goes on with its own trial, from its own checkpoint.

    with SweepTrial(space, direction="maximize") as trial:
        with Run(params=trial.params, seed=0, world=trial.world) as run:
            ...
            if trial.report(accuracy, epoch):   # True: not worth going on with
                break
            run.finish(accuracy=accuracy)
        trial.complete(accuracy)
"""

from toolkit.training.sweeps.trial import SweepTrial

__all__ = ["SweepTrial"]
