"""What torchrun starts: training runs in every way to spread a model, one after the other.

python elastic_worker.py ROOT STOP_AT KIND…     STOP_AT 0: to the end

A run goes on in ROOT/<kind> where the launch before, on another number of ranks, left it.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from toolkit.training import Run, SampleOrder
from toolkit.training.attempt import Attempt
from toolkit.training.dcp import DcpCodec
from toolkit.training.session import Stopped
from toolkit.training.tracking import NoTracker
from toolkit.training.world import TorchWorld, World, join

ORDER = SampleOrder(size=40, global_batch=12, seed=3)  # four steps an epoch, the last one short
EPOCHS = 4
STOPS = (5, 10)


class Shared:
    """The world of this process, for one run after the other."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def close(self) -> None:
        return


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1)
    )


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(ORDER.size, 8, generator=generator)
    return inputs, inputs.square().sum(dim=1, keepdim=True)


def attempt(folder: Path, restart: int) -> Attempt:
    return Attempt(
        job_id="7",
        restart_count=restart,
        run_dir=folder,
        stop_dir=folder / "stop",
        node="gpu-001",
        job_name="elastic",
        user="ada",
        account="vision",
        started_at=None,
    )


def plain(kind: str, world: World) -> tuple[Any, dict[str, Any], Any]:
    """A step to make, the parts of a checkpoint and their codec."""
    model = network()
    if kind.startswith("fsdp2"):
        mesh = init_device_mesh("cpu", (world.size,))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)

    def step(loss_of: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    return step, parts, DcpCodec()


def weights(kind: str, parts: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The whole model, on every rank."""
    if kind.startswith("zero"):
        from zero_kinds import whole

        return whole(parts["engine"])
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=False)
    return get_model_state_dict(parts["model"], options=options)


def train(kind: str, folder: Path, world: World, *, restart: int, stop_at: int) -> None:
    if kind.startswith("zero"):
        from zero_kinds import zero

        step, parts, codec = zero(int(kind[4]), network())
    else:
        step, parts, codec = plain(kind, world)
    inputs, targets = data()
    run = Run(
        params={},
        seed=3,
        checkpoint_every=4,
        print_every=1000,
        background=kind == "fsdp2-background",
        attempt=attempt(folder, restart),
        world=Shared(world),
        codec=codec,
        tracker=NoTracker(),
    )
    with run:
        run.resume(**parts)
        for batch in run.batches(ORDER, EPOCHS):
            if stop_at and batch.step == stop_at and world.rank == 0:
                run.attempt.stop_dir.mkdir(exist_ok=True)
                run.attempt.stop_files[0].write_text('{"cause": "spot-interruption"}')
            mine = torch.as_tensor(batch.mine)

            def loss_of(model: nn.Module, mine: Any = mine, weight: float = batch.weight) -> Any:
                error = mse_loss(model(inputs[mine]), targets[mine], reduction="sum")
                return error * weight

            run.step(batch, loss=step(loss_of))
    found = weights(kind, parts)
    if world.rank == 0:
        torch.save(found, folder / "weights.pt")


def main() -> None:
    root, stop_at = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    world = join()
    assert isinstance(world, TorchWorld)
    for kind in sys.argv[3:]:
        runs = [(root / kind, stop_at)]
        if not (root / kind).exists() and world.rank == 0:
            (root / kind).mkdir(parents=True)
        restart = world.broadcast(len(list((root / kind).glob("verdict.*"))))
        if restart == 0:  # beside it: undisturbed, and stopped and resumed on the same ranks
            runs += [(root / f"{kind}.whole", 0), (root / f"{kind}.same", stop_at)]
            runs += [(root / f"{kind}.same", 0)]
        for folder, at in runs:
            number = world.broadcast(len(list(folder.glob("verdict.*"))))
            try:
                train(kind, folder, world, restart=number, stop_at=at)
            except Stopped:
                world.gather(None)
    world.close()


if __name__ == "__main__":
    main()
