"""DeepSpeed's own files through the fault matrix, on one rank.

python zero_faults_worker.py ROOT

The script prints one line of JSON with the outcomes, by stage of ZeRO. It loads the files of one
rank and those of two ranks. It fails unless each load gives exactly the numbers of its step.
"""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from elastic_worker import on, prepare_deepspeed, zero  # beside this script

from tests.fakes import checkpoint_disk as disk, generators
from tests.patience import PROGRAM_SECONDS
from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import CheckpointFailed, Superseded

STAGES = (1, 3)
NEWER = "step-00000002.000002"


def train(step: Any) -> None:
    generators.draw()
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(7))
    step(lambda model: model(inputs).square().sum())


def numbers(parts: dict[str, Any]) -> list[float | str | None]:
    """Return all numbers of this rank that a checkpoint must restore.

    They are the weights, the optimizer's master copies and moments, and the generators' states.
    """
    import deepspeed

    engine = parts["engine"]
    values = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(values, enabled=engine.zero_optimization_stage() == 3):
        found = [value.detach().float().clone() for value in values]
    for state in engine.optimizer.optimizer.state.values():
        found += [value.float().clone() for value in state.values() if torch.is_tensor(value)]
    flat = [number for tensor in found for number in tensor.flatten().tolist()]
    return flat + generators.states()


def load(root: Path, world: ProcessGroup, parts: dict[str, Any], codec: Any) -> int:
    found = Checkpointer(root, world, codec=codec).load(parts)
    return int(found.facts["step"])


def save(root: Path, world: ProcessGroup, parts: dict[str, Any], codec: Any, step: int) -> None:
    Checkpointer(root, world, codec=codec).save(parts, step=step, facts={})


def damaged(content: bytes, damage: str) -> bytes | None:
    half = len(content) // 2
    flipped = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
    return {"flip": flipped, "cut": content[:half], "missing": None}[damage]


def copies(root: Path, into: Path, damages: tuple[str, ...]) -> Any:
    """Yield copies of the checkpoints, each with a damage to one file."""
    for path in sorted((root / NEWER).iterdir()):
        for damage in damages:
            copy = into / f"{path.name}-{damage}"
            shutil.copytree(root, copy)
            content = damaged(path.read_bytes(), damage)
            (copy / NEWER / path.name).unlink()
            if content is not None:
                (copy / NEWER / path.name).write_bytes(content)
            yield copy
            shutil.rmtree(copy)


def alone(root: Path, world: ProcessGroup) -> dict[str, Any]:
    met = {}
    for stage in STAGES:
        step, parts, codec = zero(stage)
        here, truth = root / f"alone{stage}", {}
        for number in (1, 2):
            train(step)
            truth[number] = numbers(parts)
            save(here, world, parts, codec, number)
        files = 0
        for copy in copies(here, root / "damaged", ("flip", "cut", "missing")):
            assert load(copy, world, parts, codec) == 1, copy.name
            assert numbers(parts) == truth[1], copy.name
            files += 1
        met[f"zero{stage}"] = {"damaged": files, "kills": kills(root, here, world, stage, truth)}
        met[f"zero{stage}"]["reshaped"] = reshaped(root, world, parts, codec, stage)
        met[f"zero{stage}"]["beside"] = beside(root / f"two{stage}", world, stage)
    return met


def kills(
    root: Path, here: Path, world: ProcessGroup, stage: int, truth: dict[int, Any]
) -> list[int]:
    """Return the steps that are loaded after kills of a third save.

    SIGKILL strikes at each file operation of the save in turn.
    """
    step, parts, codec = zero(stage)
    steps = []
    for number in range(1, 200):
        copy = root / "killed"
        shutil.copytree(here, copy)
        load(copy, world, parts, codec)
        train(step)
        truth[3] = numbers(parts)
        with (
            disk.strike(number, disk.kill) as met,
            contextlib.suppress(disk.Killed, CheckpointFailed),
        ):
            save(copy, world, parts, codec, 3)
        found = load(copy, world, parts, codec)
        assert numbers(parts) == truth[found], f"kill at {number}"
        steps.append(found)
        shutil.rmtree(copy)
        if len(met) < number:
            break
    return steps


def reshaped(
    root: Path, world: ProcessGroup, parts: dict[str, Any], codec: Any, stage: int
) -> list[int]:
    """Return the steps that one rank loads from two ranks' damaged files.

    One file is damaged at a time.
    """
    of_two = root / f"two{stage}"
    assert load(of_two, world, parts, codec) == 2
    newer = numbers(parts)
    good = root / "good"
    shutil.copytree(of_two, good)
    shutil.rmtree(good / NEWER)
    assert load(good, world, parts, codec) == 1
    older = numbers(parts)
    shutil.rmtree(good)
    assert older != newer
    found = []
    for copy in copies(of_two, root / "reshaped", ("flip",)):
        found.append(load(copy, world, parts, codec))
        assert numbers(parts) == older, copy.name
    return found


def beside(root: Path, world: ProcessGroup, stage: int) -> list[str]:
    """Have an attempt and its successor rewrite one checkpoint at once.

    Each of them does so once while the other is at work.
    """
    (root / ".universal.left").mkdir()
    truth, ends = None, []
    for first in (True, False):
        places = [root / "owner" / name for name in ("7.0.-.ab", "7.1.-.cd")]
        places[0].mkdir(parents=True)
        (_, parts, old), (_, others, new) = (zero(stage, fence=Fence(one)) for one in places)
        truth = truth or (load(root, world, parts, old), numbers(parts))[1]

        def successor(places=places, others=others, new=new) -> None:
            shutil.rmtree(places[0])
            places[1].mkdir()
            assert load(root, world, others, new) == 2

        def superseded(parts=parts, old=old) -> str:
            try:
                return f"step {load(root, world, parts, old)}"
            except Superseded:
                return "superseded"

        if first:
            with during_conversion(successor):
                ends.append(superseded())
        else:
            with during_conversion(lambda: ends.append(superseded())):
                successor()
        assert numbers(others) == truth
        shutil.rmtree(root / "owner")
    assert not list(root.glob(".universal.*"))
    return ends


@contextlib.contextmanager
def during_conversion(work: Any) -> Any:
    """Run `work` between the end of the next conversion and its reading."""
    from toolkit.training.checkpoint import deepspeed_codec as zero_codec

    real = zero_codec.ds_to_universal.main

    def convert(options: Any) -> None:
        zero_codec.ds_to_universal.main = real
        real(options)
        work()

    zero_codec.ds_to_universal.main = convert
    yield


def two(root: Path, world: ProcessGroup) -> None:
    for stage in STAGES:
        step, parts, codec = zero(stage)
        for number in (1, 2):
            train(step)
            save(root / f"two{stage}", world, parts, codec, number)


def rank(root: Path) -> None:
    from datetime import timedelta

    from toolkit.training.distributed.process_group import join

    torch.set_num_threads(1)
    os.fsync = lambda _: None  # a fault strikes the call; waiting proves nothing
    world = join(timeout=timedelta(seconds=PROGRAM_SECONDS))
    if world.size == 2:
        two(root, world)
    else:
        (root / "met.json").write_text(json.dumps(alone(root, world)))
    world.close()


def main() -> None:
    prepare_deepspeed("ERROR")
    root = Path(sys.argv[1])
    for ranks in (2, 1):
        on(ranks, lambda: rank(root))
    sys.stdout.write((root / "met.json").read_text() + "\n")


if __name__ == "__main__":
    main()
