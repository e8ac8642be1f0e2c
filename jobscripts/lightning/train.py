"""Train a small network with Lightning's Trainer, without lost work.

sbatch /shared/jobscripts/torchrun.sbatch /shared/jobscripts/lightning/train.py --epochs 30

It learns scikit-learn's digits.
"""

import argparse
import os

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from toolkit.training import Run
from toolkit.training.adapters.lightning import fit


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=48, help="samples a step, on each rank")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps")
    return parser.parse_args()


class Digits(pl.LightningModule):
    """A network from images of 8x8 to odds of ten digits."""

    def __init__(self, hidden: int, rate: float, steps: int) -> None:  # noqa: ARG002  # kept as hyperparameters
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(
            nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(hidden, 10),
        )  # fmt: skip

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        loss = cross_entropy(self.network(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        images, labels = batch
        correct = self.network(images).argmax(dim=1) == labels
        self.log("accuracy", correct.float().mean(), sync_dist=True)

    def configure_optimizers(self) -> tuple[list, list]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.hparams.steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return 1797 images; every fifth is for validation."""
    dataset = load_digits()
    images = torch.tensor(dataset.data, dtype=torch.float32) / 16
    labels = torch.tensor(dataset.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def main() -> None:
    args = parse()
    torch.set_num_threads(1)  # More threads add in another order, so weights differ in bits.
    with Run(params=vars(args), seed=args.seed, checkpoint_every=args.checkpoint_every) as run:
        local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        trainer = pl.Trainer(
            max_epochs=args.epochs,
            accelerator="gpu" if run.device.type == "cuda" else "cpu",
            devices=local_ranks,
            num_nodes=run.world.size // local_ranks,
            strategy="ddp" if run.world.size > 1 else "auto",
            default_root_dir=run.dir.path,
            logger=False,  # The run keeps its own records.
            enable_checkpointing=False,
            enable_progress_bar=False,
        )
        data, test = digits()
        torch.manual_seed(args.seed)
        steps = args.epochs * -(-len(data) // (args.batch * run.world.size))
        module = Digits(args.hidden, args.rate, steps)
        held_out = DataLoader(test, 120)
        fit(run, trainer, module, DataLoader(data, args.batch), held_out)
        (metrics,) = trainer.validate(module, held_out, verbose=False)
        run.finish(accuracy=round(metrics["accuracy"], 4))


if __name__ == "__main__":
    main()
