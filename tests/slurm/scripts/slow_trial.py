"""A trial of a sweep over the learning rate of `slow`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import slow
import torch

from toolkit.training import Run, SweepTrial, current

if TYPE_CHECKING:
    import argparse

PAUSE = 0.05  # seconds a step
STAY = 300.0  # seconds at most


def parse() -> argparse.Namespace:
    parser = slow.arguments()
    parser.add_argument(
        "--stay-in", type=int, nargs="*", default=[], help="tasks that wait to lose their machine"
    )
    return parser.parse_args()


def space(trial: Any) -> dict[str, Any]:
    return {"rate": trial.suggest_float("rate", 1e-3, 0.5, log=True)}


def stay(run: Run) -> None:
    """Take no further step for minutes, unless a stop is requested.

    A long evaluation does the same.
    """
    for _ in range(int(STAY / PAUSE)):
        run.check()
        time.sleep(PAUSE)


def main() -> None:
    args = parse()
    torch.set_num_threads(1)
    chosen = int(os.environ["SLURM_ARRAY_TASK_ID"]) in args.stay_in
    stays = chosen and current().restart_count == 0
    with SweepTrial(space, direction="minimize") as trial:
        params = {"epochs": args.epochs, **trial.params}
        with Run(params=params, seed=0, world=trial.world, checkpoint_every=args.save_every) as run:
            model = torch.nn.Linear(1, 1)
            for epoch in slow.epochs(run, model, args.epochs, rate=params["rate"], pause=PAUSE):
                if stays and run.step_count == args.save_every:
                    stay(run)
                if trial.report(slow.loss_of(model).item(), epoch) and not stays:
                    break
        trial.complete(slow.loss_of(model).item())


if __name__ == "__main__":
    main()
