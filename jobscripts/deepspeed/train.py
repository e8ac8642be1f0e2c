"""Train on scikit-learn's digits with DeepSpeed, at ZeRO 1, 2 or 3.

sbatch /shared/jobscripts/deepspeed.sbatch /shared/jobscripts/deepspeed/train.py --stage 3

It runs on GPUs. To try it out, CPUs will do.
"""

import argparse

import deepspeed
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from toolkit.training import DeepSpeedCodec, Run, SampleOrder, content_hash


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=96, help="samples a step, over all ranks")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stage", type=int, default=2, choices=(1, 2, 3))
    parser.add_argument(
        "--offload", action="store_true", help="optimizer state in the CPU's memory"
    )
    return parser.parse_args()


def settings(args: argparse.Namespace, device: torch.device) -> dict[str, object]:
    """Return DeepSpeed's configuration.

    Its batch size is unused, because the run makes the batches.
    """
    zero: dict[str, object] = {"stage": args.stage}
    if args.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": device.type == "cuda"}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": device.type == "cuda"},
    }


def main() -> None:
    args = parse()
    with Run(
        params=vars(args), seed=args.seed, checkpoint_every=100, codec=DeepSpeedCodec()
    ) as run:
        if run.device.type == "cpu":
            deepspeed.ops.__compatible_ops__.clear()  # Prevents a compilation: gloo is enough.
        dataset = load_digits()
        images = torch.tensor(dataset.data, dtype=torch.float32) / 16
        labels = torch.tensor(dataset.target, dtype=torch.int64)
        run.describe(data_hash=content_hash(images, labels))
        torch.manual_seed(args.seed)
        model = nn.Sequential(
            nn.Linear(64, args.hidden), nn.ReLU(),
            nn.Linear(args.hidden, args.hidden), nn.ReLU(),
            nn.Linear(args.hidden, 10),
        )  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=settings(args, run.device)
        )
        run.resume(engine=engine)

        order = SampleOrder(len(labels), args.batch, args.seed)
        dtype = next(engine.module.parameters()).dtype
        for batch in run.batches(order, args.epochs):
            logits = engine(images[batch.mine].to(engine.device, dtype)).float()
            targets = labels[batch.mine].to(engine.device)
            loss = cross_entropy(logits, targets, reduction="sum") * batch.weight
            engine.backward(loss)
            engine.step()
            run.step(batch, loss=loss.detach())

        engine.eval()
        rows = torch.arange(run.world.rank, len(labels), run.world.size)
        with torch.no_grad():
            guesses = engine(images[rows].to(engine.device, dtype)).argmax(dim=1).cpu()
        correct = int((guesses == labels[rows]).sum())
        run.finish(accuracy=round(sum(run.world.gather(correct)) / len(labels), 4))


if __name__ == "__main__":
    main()
