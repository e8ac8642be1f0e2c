"""Train on the digits in stages, one on each rank, with torch.distributed.pipelining.

sbatch /shared/jobscripts/pipeline.sbatch /shared/jobscripts/pipeline/train.py --epochs 30

A checkpoint holds layers by their names, so a run may resume with more stages or with fewer.
"""

import argparse
from collections import OrderedDict

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import cross_entropy

from toolkit.training import DcpCodec, Run, SampleOrder, content_hash


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=96, help="samples a step")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def stage(args: argparse.Namespace, rank: int, world: int) -> nn.Module:
    """Return this rank's layers, under their names in the whole model."""
    torch.manual_seed(args.seed)
    layers = nn.ModuleDict({"in": nn.Linear(64, args.hidden)})
    for number in range(args.layers):
        layers[f"layer{number}"] = nn.Sequential(nn.ReLU(), nn.Linear(args.hidden, args.hidden))
    layers["out"] = nn.Sequential(nn.ReLU(), nn.Linear(args.hidden, 10))
    names = list(layers)
    own_names = names[rank * len(names) // world : (rank + 1) * len(names) // world]
    return nn.Sequential(OrderedDict((name, layers[name]) for name in own_names))


def main() -> None:
    args = parse()
    if args.batch % args.microbatches:
        raise SystemExit("--batch must be a multiple of --microbatches")
    torch.set_num_threads(1)
    with Run(params=vars(args), seed=args.seed, checkpoint_every=100, codec=DcpCodec()) as run:
        rank, world = run.world.rank, run.world.size
        dataset = load_digits()
        images = torch.tensor(dataset.data, dtype=torch.float32, device=run.device) / 16
        labels = torch.tensor(dataset.target, dtype=torch.int64, device=run.device)
        run.describe(data_hash=content_hash(images.cpu(), labels.cpu()))
        model = stage(args, rank, world).to(run.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
        schedule = ScheduleGPipe(
            PipelineStage(model, rank, world, run.device),
            n_microbatches=args.microbatches,
            loss_fn=cross_entropy,
        )
        run.resume(model=model, optimizer=optimizer)

        # The stages agree on the shape of a step only once: an epoch has a whole number of steps.
        order = SampleOrder(len(labels) // args.batch * args.batch, args.batch, args.seed)
        first, last = rank == 0, rank == world - 1
        for batch in run.batches(order, args.epochs):
            losses: list[torch.Tensor] = []
            optimizer.zero_grad()
            # All ranks work on all samples of the step, each with its own layers.
            schedule.step(
                *([images[batch.ids]] if first else []),
                **({"target": labels[batch.ids], "losses": losses} if last else {}),
            )
            optimizer.step()
            loss = torch.stack(losses).mean().item() if last else 0.0
            run.step(batch, loss=sum(run.world.gather(loss)))

        samples = slice(args.batch)
        output = schedule.eval(
            *([images[samples]] if first else []), **({"target": labels[samples]} if last else {})
        )
        correct = (output.argmax(dim=1) == labels[samples]).float().mean().item() if last else 0.0
        run.finish(accuracy=round(sum(run.world.gather(correct)), 4))


if __name__ == "__main__":
    main()
