"""A sharded save of two ranks, killed at each file operation.

python sharded_faults_worker.py ROOT

The script writes the loaded steps by killed rank to ROOT/met.json.

After each kill the state is loaded on one rank. The script fails unless the whole state is exactly
that of its step.
"""

import contextlib
import json
import os
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from elastic_worker import forked, network, on, plain, weights  # beside this script

from tests.fakes import checkpoint_disk as disk
from tests.patience import PROGRAM_SECONDS
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.dcp_codec import DcpCodec
from toolkit.training.distributed.process_group import ProcessGroup, Solo, join
from toolkit.training.errors import CheckpointFailed

RANKS = 2
MOST = 200  # a limit; a save has far fewer operations
STRIDE = 3  # every third operation; test_checkpoint_faults strikes at each, on one rank


def train(step: Any) -> None:
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(7))
    step(lambda model: model(inputs).square().sum())


def quick_join() -> ProcessGroup:
    torch.set_num_threads(1)
    os.fsync = lambda _: None  # a fault strikes the call; waiting proves nothing
    return join(timeout=timedelta(seconds=PROGRAM_SECONDS))


def undisturbed(root: Path) -> None:
    """Write two checkpoints, and the weights of three steps."""
    world = quick_join()
    step, parts, codec = plain("fsdp2", world)
    for number in (1, 2, 3):
        train(step)
        whole = weights("fsdp2", parts)
        if world.rank == 0:
            torch.save(whole, root / f"truth-{number}.pt")
        if number < 3:
            saves = Checkpointer(root / "saved", world, codec=codec)
            saves.save(parts, step=number, facts={})
    world.close()


def third(folder: Path, rank: int, number: int) -> None:
    """Train step 3, and kill that rank during its save.

    The kill comes at the file operation of that number. If the save has fewer, a file reports it.
    """
    world = quick_join()
    step, parts, codec = plain("fsdp2", world)
    saves = Checkpointer(folder, world, codec=codec)
    saves.load(parts)
    train(step)
    if world.rank != rank:
        with contextlib.suppress(CheckpointFailed, RuntimeError):  # the other rank was killed
            saves.save(parts, step=3, facts={})
        return
    with disk.strike(number, disk.vanish):
        saves.save(parts, step=3, facts={})
    folder.with_suffix(".whole").touch()


def found(root: Path, folder: Path) -> int:
    model = network()
    loaded = Checkpointer(folder, Solo(), codec=DcpCodec()).load({"model": model})
    assert loaded is not None
    step = int(loaded.facts["step"])
    truth = torch.load(root / f"truth-{step}.pt", weights_only=True)
    for name, value in model.state_dict().items():
        assert torch.equal(value, truth[name]), f"step {step}: {name} in {folder}"
    return step


def met(root: Path, rank: int) -> list[int]:
    steps = []
    for number in range(1, MOST, STRIDE):
        folder = root / f"{rank}-{number}"
        shutil.copytree(root / "saved", folder)
        forked(RANKS, lambda folder=folder, number=number: third(folder, rank, number))
        steps.append(found(root, folder))
        shutil.rmtree(folder)
        if folder.with_suffix(".whole").exists():
            break
    return steps


def main() -> None:
    root = Path(sys.argv[1])
    torch.set_num_threads(1)
    on(RANKS, lambda: undisturbed(root))
    (root / "met.json").write_text(json.dumps([met(root, rank) for rank in range(RANKS)]))


if __name__ == "__main__":
    main()
