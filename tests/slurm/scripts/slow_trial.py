"""One trial of a sweep over how fast `slow` learns."""

from __future__ import annotations

from typing import Any

import slow
import torch

from toolkit.training import Run
from toolkit.training.sweeps import SweepTrial

PAUSE = 0.05  # seconds a step


def space(trial: Any) -> dict[str, Any]:
    return {"rate": trial.suggest_float("rate", 1e-3, 0.5, log=True)}


def main() -> None:
    args = slow.parse()
    torch.set_num_threads(1)
    with SweepTrial(space, direction="minimize") as trial:
        params = {**vars(args), **trial.params}
        with Run(params=params, seed=0, world=trial.world, checkpoint_every=slow.SAVE_EVERY) as run:
            model = torch.nn.Linear(1, 1)
            for epoch in slow.epochs(run, model, args.epochs, rate=params["rate"], pause=PAUSE):
                if trial.report(slow.loss_of(model).item(), epoch):
                    break
        trial.complete(slow.loss_of(model).item())


if __name__ == "__main__":
    main()
