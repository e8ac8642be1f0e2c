"""Saving and loading against bare dcp.save and dcp.load, on one rank and one disk.

python -m tests.bench.checkpoints FOLDER [MIB]     prints one line of JSON
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 5


def state(mib: int) -> Any:
    """A model of so many MiB, in tensors of 16."""
    import torch

    torch.manual_seed(0)
    return torch.nn.ParameterDict(
        {f"w{i}": torch.nn.Parameter(torch.randn(2048, 2048)) for i in range(mib // 16)}
    )


def median(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    seconds = []
    for _ in range(REPEATS):
        before()
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def unhashed(shard: Any) -> Callable[[], None]:
    """The same save without hashes, to tell what they cost; what puts them back."""
    before = shard.HashingWriter._hash

    def count(writer: Any, view: memoryview) -> list[Any]:
        writer._size += len(view)
        return []

    shard.HashingWriter._hash = count
    return lambda: setattr(shard.HashingWriter, "_hash", before)


def measure(root: Path, mib: int) -> dict[str, float]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    from toolkit.training import manifest, shard
    from toolkit.training.checkpoint import Checkpointer
    from toolkit.training.dcp import DcpCodec
    from toolkit.training.world import Solo

    parts = {"model": state(mib)}
    plain, ours = root / "plain", root / "ours"

    def bare() -> None:
        shutil.rmtree(plain, ignore_errors=True)
        dcp.save({"model": get_model_state_dict(parts["model"])}, checkpoint_id=plain)

    def save(**options: Any) -> Any:
        checkpoints = Checkpointer(ours, Solo(), codec=DcpCodec())
        return checkpoints.save(parts, step=1, facts={}, **options)

    def clear() -> None:
        shutil.rmtree(ours, ignore_errors=True)

    found = {"mib": float(mib), "dcp.save": median(bare)}
    found["save, on a notice"] = median(lambda: save(urgent=True), clear)
    found["save, read back and pruned"] = median(save, clear)
    restore = unhashed(shard)
    found["save, on a notice, without hashes"] = median(lambda: save(urgent=True), clear)
    restore()

    behind = Checkpointer(ours, Solo(), codec=DcpCodec(), background=True)
    stalls = []
    for step in range(REPEATS + 1):
        begun = time.perf_counter()
        behind.begin(parts, step=step, facts={})
        stalls.append(time.perf_counter() - begun)
        behind.settle()
    found["stall in the background, first"] = stalls[0]
    found["stall in the background, then"] = statistics.median(stalls[1:])

    clear()
    save()
    into = {"model": state(mib)}
    found["dcp.load"] = median(
        lambda: dcp.load({"model": get_model_state_dict(into["model"])}, checkpoint_id=plain)
    )
    found["load, verified"] = median(
        lambda: Checkpointer(ours, Solo(), codec=DcpCodec()).load(into)
    )
    folder = next(ours.iterdir())
    found["verify alone"] = median(lambda: manifest.verify(folder))
    return found


def main() -> None:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    root = Path(sys.argv[1])
    mib = int(sys.argv[2]) if len(sys.argv) > 2 else 512  # the optional size
    root.mkdir(parents=True, exist_ok=True)
    try:
        found = measure(root, mib)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    load = os.getloadavg()[0]
    sys.stdout.write(
        json.dumps({"load": round(load, 1)} | {k: round(v, 3) for k, v in found.items()})
    )
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
