"""Runs on 2, 1 and 3 ranks, with each way of sharding.

python elastic_worker.py ROOT KIND…

The run in ROOT/<kind> was stopped on the earlier number of ranks. All first ranks of the run in
ROOT/<kind>.killed were killed after a save. Each run continues on the next number of ranks.

The ranks are forked from one process, because importing torch and DeepSpeed takes most of the time.
test_torchrun_job.py tests torchrun itself.
"""

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # imported here once, or each rank would import it at its first optimizer step
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from tests.fakes import generators
from tests.patience import PROGRAM_SECONDS
from toolkit.training import Run, SampleOrder
from toolkit.training.attempt.attempt import Attempt
from toolkit.training.checkpoint import block_reader
from toolkit.training.checkpoint.dcp_codec import DcpCodec
from toolkit.training.distributed.process_group import ProcessGroup, TorchProcessGroup, join
from toolkit.training.run import Stopped
from toolkit.training.tracking.tracker import NoTracker

ORDER = SampleOrder(size=40, global_batch=12, seed=3)  # four steps an epoch, the last one short
EPOCHS = 4
SAVE_EVERY = 4  # steps
KILLED_AT = 6  # steps: two after a save


class Shared:
    """The worker's process group, kept open for several runs."""

    def __init__(self, world: ProcessGroup) -> None:
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


def plain(kind: str, world: ProcessGroup) -> tuple[Any, dict[str, Any], Any]:
    """Return a training step, the parts of a checkpoint, and their codec."""
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


def zero(stage: int, **of_codec: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return the same for DeepSpeed."""
    import deepspeed

    from toolkit.training.checkpoint.deepspeed_codec import DeepSpeedCodec

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

    return step, {"engine": engine, "scheduler": scheduler}, DeepSpeedCodec(**of_codec)


def prepare_deepspeed(level: str) -> None:
    """Import all that each rank would import at its first step.

    Most of it is torch's compilers.
    """
    import deepspeed
    import deepspeed.runtime.zero.muon.muon_optimizer

    deepspeed.utils.logger.setLevel(level)
    # DeepSpeed would compile its C++ code for CPUs; gloo does its work.
    deepspeed.ops.__compatible_ops__.clear()


def weights(kind: str, parts: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the whole model's weights, on every rank."""
    if kind.startswith("zero"):
        import deepspeed

        module = parts["engine"].module
        values = list(module.parameters())
        with deepspeed.zero.GatheredParameters(values, enabled=kind.startswith("zero3")):
            return {name: value.detach().clone() for name, value in module.named_parameters()}
    options = StateDictOptions(full_state_dict=True, cpu_offload=False)
    return get_model_state_dict(parts["model"], options=options)


def killed(folder: Path) -> None:
    """Kill this rank with SIGKILL, once a checkpoint is committed."""
    while not list(folder.glob("checkpoints/*/COMMITTED")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def train(
    kind: str,
    folder: Path,
    world: ProcessGroup,
    *,
    restart: int,
    stop_at: int = 0,
    kill_at: int = 0,
) -> None:
    if kind.startswith("zero"):
        step, parts, codec = zero(int(kind[4]))
    else:
        step, parts, codec = plain(kind, world)
    inputs, targets = data()
    run = Run(
        params={},
        seed=3,
        checkpoint_every=SAVE_EVERY,
        print_every=1000,
        background=kind == "fsdp2-background",
        local=folder.parent / "local" if kind == "fsdp2-local" else None,
        attempt=attempt(folder, restart),
        world=Shared(world),
        codec=codec,
        tracker=NoTracker(),
    )
    generators.seed(world.rank)
    drawn = {}
    with run:
        run.resume(**parts)
        for batch in run.batches(ORDER, EPOCHS):
            if stop_at and batch.step == stop_at and world.rank == 0:
                run.attempt.stop_dir.mkdir(exist_ok=True)
                run.attempt.stop_files[0].write_text('{"cause": "spot-interruption"}')
                time.sleep(0.2)  # the interval of the looks for a stop request
            if kill_at and batch.step == kill_at:
                killed(folder)
            mine = torch.as_tensor(batch.mine)
            drawn[batch.step] = generators.draw()

            def loss_of(model: nn.Module, mine: Any = mine, weight: float = batch.weight) -> Any:
                error = mse_loss(model(inputs[mine]), targets[mine], reduction="sum")
                return error * weight

            run.step(batch, loss=step(loss_of))
    found, everywhere = weights(kind, parts), world.gather(drawn)
    if world.rank == 0:
        torch.save(found, folder / "weights.pt")
        torch.save(everywhere, folder / "drawn.pt")


def attempts(folder: Path) -> int:
    """Return the number of attempts of a run."""
    ledger = folder / "attempts.jsonl"
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def rank_to_kill(root: Path, kind: str) -> None:
    torch.set_num_threads(1)
    world = join(timeout=timedelta(seconds=PROGRAM_SECONDS))
    train(kind, root / f"{kind}.killed", world, restart=0, kill_at=KILLED_AT)


def rank(root: Path, stop_at: int, kinds: list[str]) -> None:
    torch.set_num_threads(1)
    world = join(timeout=timedelta(seconds=PROGRAM_SECONDS))
    assert isinstance(world, TorchProcessGroup)
    for kind in kinds:
        runs = [(root / kind, stop_at)]
        if attempts(root / f"{kind}.killed"):
            runs += [(root / f"{kind}.killed", stop_at)]
        if not attempts(root / kind):
            # In the first call also two other runs: one undisturbed, and one stopped and resumed on
            # the same ranks.
            runs += [(root / f"{kind}.whole", 0), (root / f"{kind}.same", stop_at)]
            runs += [(root / f"{kind}.same", 0)]
        world.gather(None)  # all ranks have read the attempts files
        for folder, at in runs:
            number = world.broadcast(attempts(folder))
            try:
                train(kind, folder, world, restart=number, stop_at=at)
            except Stopped:
                world.gather(None)
    world.close()


def forked(ranks: int, work: Callable[[], None]) -> list[int]:
    """Run the work on so many ranks, forked from this process.

    Returns their exit codes.
    """
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
            block_reader.thread_pool.cache_clear()  # a fork has none of the threads
            ended = 1
            try:
                work()
                ended = 0
            except BaseException:  # noqa: BLE001  # whatever it is, this copy of the process ends
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(ended)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def on(ranks: int, work: Callable[[], None], *, code: int = 0) -> None:
    """Run the work on so many ranks.

    The program exits unless each rank ends with `code`.
    """
    codes = forked(ranks, work)
    if set(codes) != {code}:
        raise SystemExit(f"{ranks} ranks: exit codes {codes}")


def main() -> None:
    root, kinds = Path(sys.argv[1]), sys.argv[2:]
    if any(kind.startswith("zero") for kind in kinds):
        prepare_deepspeed("WARNING")
    on(2, partial(rank, root, 4, kinds))
    for kind in kinds:
        on(2, partial(rank_to_kill, root, kind), code=-signal.SIGKILL)
    on(1, partial(rank, root, 9, kinds))
    on(3, partial(rank, root, 0, kinds))


if __name__ == "__main__":
    main()
