"""Runs trained on 2 ranks, then on 1, then on 3, in every way to spread a model over them.

python elastic_worker.py ROOT KIND…

A run goes on in ROOT/<kind> where it was stopped on the number of ranks before. The ranks are
forked from one process: what takes the time is to import torch and DeepSpeed. That torchrun starts
ranks just as well is test_torchrun_job's to show.
"""

import os
import socket
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
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


def zero(stage: int) -> tuple[Any, dict[str, Any], Any]:
    """The same with DeepSpeed."""
    import deepspeed

    from toolkit.training.zero import DeepSpeedCodec

    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "zero_allow_untested_optimizer": True,
        },
    )

    def step(loss_of: Any) -> torch.Tensor:
        loss = loss_of(engine)
        engine.backward(loss)
        engine.step()
        scheduler.step()
        return loss.detach()

    return step, {"engine": engine, "scheduler": scheduler}, DeepSpeedCodec()


def weights(kind: str, parts: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The whole model, on every rank."""
    if kind.startswith("zero"):
        import deepspeed

        module = parts["engine"].module
        values = list(module.parameters())
        with deepspeed.zero.GatheredParameters(values, enabled=kind.startswith("zero3")):
            return {name: value.detach().clone() for name, value in module.named_parameters()}
    options = StateDictOptions(full_state_dict=True, cpu_offload=False)
    return get_model_state_dict(parts["model"], options=options)


def train(kind: str, folder: Path, world: World, *, restart: int, stop_at: int) -> None:
    if kind.startswith("zero"):
        step, parts, codec = zero(int(kind[4]))
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


def rank(root: Path, stop_at: int, kinds: list[str]) -> None:
    torch.set_num_threads(1)
    world = join(timeout=timedelta(seconds=60))
    assert isinstance(world, TorchWorld)
    for kind in kinds:
        runs = [(root / kind, stop_at)]
        if not list((root / kind).glob("verdict.*")):
            # The first time also: undisturbed, and stopped and resumed on the same ranks.
            runs += [(root / f"{kind}.whole", 0), (root / f"{kind}.same", stop_at)]
            runs += [(root / f"{kind}.same", 0)]
        world.gather(None)  # all have looked
        for folder, at in runs:
            number = world.broadcast(len(list(folder.glob("verdict.*"))))
            try:
                train(kind, folder, world, restart=number, stop_at=at)
            except Stopped:
                world.gather(None)
    world.close()


def on(ranks: int, work: Callable[[], None]) -> None:
    """Fork the ranks and wait for them; the first that fails ends the others."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for number in range(ranks):
        child = os.fork()
        if child == 0:
            os.environ |= {
                "RANK": str(number),
                "LOCAL_RANK": str(number),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            code = 1
            try:
                work()
                code = 0
            except BaseException:  # noqa: BLE001  # whatever it is, this copy of the process ends
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise SystemExit(f"{ranks} ranks: exit codes {codes}")


def main() -> None:
    root, kinds = Path(sys.argv[1]), sys.argv[2:]
    if any(kind.startswith("zero") for kind in kinds):
        import deepspeed

        deepspeed.utils.logger.setLevel("WARNING")
        # It would compile what it has in C++ for CPUs; gloo does.
        deepspeed.ops.__compatible_ops__.clear()
    for ranks, stop_at in ((2, 4), (1, 9), (3, 0)):
        on(ranks, partial(rank, root, stop_at, kinds))


if __name__ == "__main__":
    main()
