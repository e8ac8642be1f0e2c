"""A sharded save of two ranks, one of which SIGKILL ends at one file operation after the other.

python sharded_faults_worker.py ROOT        writes ROOT/met.json: the steps found, by killed rank

Each time the state is loaded on one rank, whole, and is exactly that of its step, or this fails.
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
from elastic_worker import forked, network, on, plain, weights  # its folder comes first on the path

from tests.fakes import checkpoint_disk as disk
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.dcp_codec import DcpCodec
from toolkit.training.distributed.process_group import ProcessGroup, Solo, join
from toolkit.training.errors import CheckpointFailed

RANKS = 2
MOST = 200  # operations; a save has far fewer
STRIDE = 3  # test_checkpoint_faults strikes at every one, on one rank


def train(step: Any) -> None:
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(7))
    step(lambda model: model(inputs).square().sum())


def quick_join() -> ProcessGroup:
    torch.set_num_threads(1)
    os.fsync = lambda _: None  # faults are put where one is; waiting for it proves nothing
    return join(timeout=timedelta(seconds=20))


def undisturbed(root: Path) -> None:
    """Two checkpoints, and what the model is at these two steps and the next."""
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
    """Go on to step 3; that rank dies at its numberth operation, and says if it had as many."""
    world = quick_join()
    step, parts, codec = plain("fsdp2", world)
    saves = Checkpointer(folder, world, codec=codec)
    saves.load(parts)
    train(step)
    if world.rank != rank:
        with contextlib.suppress(CheckpointFailed, RuntimeError):  # the other went
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
