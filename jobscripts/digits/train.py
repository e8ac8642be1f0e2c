"""Train a small network on scikit-learn's digits in a PyTorch loop.

sbatch /shared/jobscripts/torchrun.sbatch /shared/jobscripts/digits/train.py --epochs 30

The training survives the loss of instances.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from toolkit.training import Run, SampleOrder, content_hash


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=96, help="samples a step, over all ranks")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps")
    parser.add_argument("--print-every", type=int, default=25, help="steps")
    return parser.parse_args()


def digits(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return 1797 images of 8x8; every fifth is for the test."""
    dataset = load_digits()
    images = torch.tensor(dataset.data, dtype=torch.float32, device=device) / 16
    labels = torch.tensor(dataset.target, dtype=torch.int64, device=device)
    test = torch.arange(len(labels), device=device) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def network(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(hidden, 10),
    )  # fmt: skip


def main() -> None:
    args = parse()
    torch.set_num_threads(1)  # More threads add in another order, so weights differ in bits.
    with Run(
        params=vars(args),
        seed=args.seed,
        checkpoint_every=args.checkpoint_every,
        print_every=args.print_every,
    ) as run:
        images, labels, test_images, test_labels = digits(run.device)
        run.describe(data_hash=content_hash(images.cpu(), labels.cpu()))

        torch.manual_seed(args.seed)  # the same weights on every rank
        model = network(args.hidden).to(run.device)
        torch.manual_seed(args.seed * 1000 + run.world.rank + 1)  # another dropout on each rank
        if run.world.size > 1:
            model = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
        order = SampleOrder(len(labels), args.batch, args.seed)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, T_max=args.epochs * order.steps_per_epoch
        )
        run.resume(model=model, optimizer=optimizer, scheduler=scheduler)

        for batch in run.batches(order, args.epochs):
            optimizer.zero_grad()
            logits = model(images[batch.mine])
            loss = cross_entropy(logits, labels[batch.mine], reduction="sum") * batch.weight
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(batch, loss=loss.detach(), rate=scheduler.get_last_lr()[0])

        model.eval()
        with torch.no_grad():
            correct = model(test_images).argmax(dim=1) == test_labels
        run.finish(accuracy=round(correct.float().mean().item(), 4))


if __name__ == "__main__":
    main()
