"""Train a transformer on Python's source text, sharded by FSDP2.

sbatch /shared/jobscripts/fsdp.sbatch /shared/jobscripts/fsdp/train.py --epochs 2

Each rank has a shard of the model.
"""

import argparse
import math
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from toolkit.training import DcpCodec, Run, SampleOrder, content_hash


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32, help="sequences a step, over all ranks")
    parser.add_argument("--length", type=int, default=128, help="bytes a sequence")
    parser.add_argument("--sequences", type=int, default=2048)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def text(count: int, length: int) -> torch.Tensor:
    """Return sequences of bytes from the standard library, which every node has."""
    size = count * (length + 1)
    content = b""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        content += path.read_bytes()
        if len(content) >= size:
            break
    return torch.frombuffer(bytearray(content[:size]), dtype=torch.uint8).view(-1, length + 1)


class Model(nn.Module):
    """A model from bytes to the odds of the next byte."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.place = nn.Parameter(torch.randn(length, width) / math.sqrt(width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens) + self.place
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], hidden.device)
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden)


def loss_of(model: nn.Module, data: torch.Tensor) -> torch.Tensor:
    """Return the loss in nats a byte, summed over the sequences."""
    tokens = data.to(torch.int64)
    logits = model(tokens[:, :-1]).flatten(0, 1)
    return cross_entropy(logits, tokens[:, 1:].flatten(), reduction="sum") / (tokens.shape[1] - 1)


def main() -> None:
    args = parse()
    with Run(
        params=vars(args),
        seed=args.seed,
        checkpoint_every="auto",
        background=True,
        codec=DcpCodec(),
    ) as run:
        data = text(args.sequences, args.length)
        run.describe(data_hash=content_hash(data))
        torch.manual_seed(args.seed)
        model = Model(args.width, args.layers, args.length).to(run.device)
        mesh = init_device_mesh(run.device.type, (run.world.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
        run.resume(model=model, optimizer=optimizer)

        order = SampleOrder(len(data), args.batch, args.seed)
        for batch in run.batches(order, args.epochs):
            loss = loss_of(model, data[batch.mine].to(run.device))
            optimizer.zero_grad()
            (loss * batch.weight).backward()
            optimizer.step()
            run.step(batch, loss=loss.detach() * batch.weight)

        model.eval()
        own_data = data[run.world.rank :: run.world.size][: args.batch]
        with torch.no_grad():
            loss = float(loss_of(model, own_data.to(run.device))) / len(own_data)
        losses = run.world.gather(loss)
        run.finish(bits_per_byte=round(sum(losses) / len(losses) / math.log(2), 4))


if __name__ == "__main__":
    main()
