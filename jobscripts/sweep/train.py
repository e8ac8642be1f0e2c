"""Train a small network on scikit-learn's digits as a sweep's trial.

sbatch --array=0-23%8 /shared/jobscripts/sweep.sbatch /shared/jobscripts/sweep/train.py
"""

import argparse
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from toolkit.training import Run, SampleOrder, SweepTrial


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=96, help="samples a step, over all ranks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=15, help="steps")
    return parser.parse_args()


def space(trial: Any) -> dict[str, Any]:
    """Return a trial's parameters, drawn by Optuna's own methods."""
    return {
        "rate": trial.suggest_float("rate", 1e-4, 1e-1, log=True),
        "hidden": trial.suggest_categorical("hidden", [32, 128, 512]),
        "dropout": trial.suggest_float("dropout", 0.0, 0.6),
    }


def digits(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return 1797 images of 8x8; every fifth is for the test."""
    dataset = load_digits()
    images = torch.tensor(dataset.data, dtype=torch.float32, device=device) / 16
    labels = torch.tensor(dataset.target, dtype=torch.int64, device=device)
    test = torch.arange(len(labels), device=device) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        correct = model(images).argmax(dim=1) == labels
    model.train()
    return correct.float().mean().item()


def main() -> None:
    args = parse()
    torch.set_num_threads(1)
    with SweepTrial(space, direction="maximize") as trial:
        params = {**vars(args), **trial.params}
        with Run(
            params=params,
            seed=args.seed,
            world=trial.world,
            checkpoint_every=args.checkpoint_every,
        ) as run:
            run.describe(trial=str(trial.number))
            images, labels, test_images, test_labels = digits(run.device)
            torch.manual_seed(args.seed)
            model: nn.Module = nn.Sequential(
                nn.Linear(64, params["hidden"]), nn.ReLU(), nn.Dropout(params["dropout"]),
                nn.Linear(params["hidden"], 10),
            ).to(run.device)  # fmt: skip
            if run.world.size > 1:
                model = DistributedDataParallel(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=params["rate"], momentum=0.9)
            order = SampleOrder(len(labels), args.batch, args.seed)
            run.resume(model=model, optimizer=optimizer)

            def is_pruned(epoch: int) -> bool:
                return trial.report(accuracy(model, test_images, test_labels), epoch)

            for batch in run.batches(order, args.epochs):
                # An epoch is reported as the next one begins: a stop at its last step leaves the
                # loop from run.step.
                if batch.begins_epoch and batch.epoch and is_pruned(batch.epoch - 1):
                    break
                optimizer.zero_grad()
                logits = model(images[batch.mine])
                loss = cross_entropy(logits, labels[batch.mine], reduction="sum") * batch.weight
                loss.backward()
                optimizer.step()
                run.step(batch, loss=loss.detach())
            else:
                is_pruned(args.epochs - 1)
            result = round(accuracy(model, test_images, test_labels), 4)
            run.finish(accuracy=result)
        trial.complete(result)


if __name__ == "__main__":
    main()
