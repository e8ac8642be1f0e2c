"""Training that is slow but needs little CPU.

Many such trainings fit on two cores. The script imports neither scikit-learn nor an optimizer,
because these imports take longer than all of its steps.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed

from toolkit.training import Run, SampleOrder

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDER = SampleOrder(size=40, global_batch=4, seed=0)  # ten steps an epoch
INPUTS = torch.linspace(-1, 1, ORDER.size).reshape(-1, 1)
PAUSE = 0.1  # seconds a step


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument(
        "--gate", type=Path, help="end with the first epoch after this file is there"
    )
    return parser


def loss_of(model: torch.nn.Module, inputs: torch.Tensor = INPUTS) -> torch.Tensor:
    return (model(inputs) - 3 * inputs).square().sum()


def epochs(
    run: Run, model: torch.nn.Module, number: int, *, rate: float = 0.1, pause: float = PAUSE
) -> Iterator[int]:
    """Fit a line, and yield each finished epoch's number, from 0."""
    run.resume(model=model)
    for batch in run.batches(ORDER, number):
        if batch.begins_epoch and batch.epoch:
            yield batch.epoch - 1
        model.zero_grad()
        loss = loss_of(model, INPUTS[batch.mine]) * batch.weight
        loss.backward()
        for value in model.parameters():
            if run.world.size > 1:
                distributed.all_reduce(value.grad)
            value.data -= rate / run.world.size * value.grad
        run.step(batch, loss=loss.detach())
        time.sleep(pause)
    yield number - 1


def is_open(gate: Path | None, ranks: int) -> bool:
    """Return whether every rank sees the gate's file.

    All ranks get the same answer, so they end together.
    """
    if gate is None:
        return False
    gate_exists = torch.tensor(float(gate.exists()))
    if ranks > 1:
        distributed.all_reduce(gate_exists, op=distributed.ReduceOp.MIN)
    return bool(gate_exists)


def main() -> None:
    args = arguments().parse_args()
    torch.set_num_threads(1)
    params = {"epochs": args.epochs}
    with Run(params=params, seed=0, checkpoint_every=args.save_every) as run:
        for _ in epochs(run, torch.nn.Linear(1, 1), args.epochs):
            if is_open(args.gate, run.world.size):
                break


if __name__ == "__main__":
    main()
