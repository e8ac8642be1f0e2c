"""Benchmark of saving and loading against bare dcp.save, dcp.async_save and dcp.load.

It runs on one rank and one disk, and prints a table and one line of JSON. The model is on the GPU
if there is one. Then more rows have copies of shards alone, and their bound.

python -m tests.bench.checkpoints FOLDER [MIB] [ROUNDS]

Every round does each thing once, one after the other. A ratio is the median of the rounds' own
ratios. Other load of the host changes it less than it changes the seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import statistics
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from torch.distributed.checkpoint.api import CheckpointException

from toolkit.training.checkpoint import hashes as file_hashes
from toolkit.training.distributed.process_group import device as device_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolkit.training.checkpoint.torch_codec import Codec

ROUNDS = 7
ASYNC_SAVE = "stall, dcp.async_save"


@dataclass
class Row:
    """Wall and CPU seconds, one of each a round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def time(self, work: Callable[[], object]) -> None:
        begun, used = time.perf_counter(), processor()
        work()
        self.wall.append(time.perf_counter() - begun)
        self.cpu.append(processor() - used)


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mib() -> float:
    """Return this process's memory that is not backed by a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def state(mib: int, device: torch.device) -> Any:
    """Make a model of so many MiB.

    Its tensors have 64 MiB each, as weights of 4096 x 4096 have.
    """
    torch.manual_seed(0)
    shape = (4096, 4096)
    return torch.nn.ParameterDict(
        {f"w{i}": torch.nn.Parameter(torch.randn(shape, device=device)) for i in range(mib // 64)}
    )


@contextmanager
def unhashed() -> Iterator[None]:
    """Turn the hashes off, to measure their cost."""
    from toolkit.training.checkpoint import hashed_file

    nothing = SimpleNamespace(update=lambda _: None, digest=lambda: b"", hexdigest=lambda: "")
    hashed_file.hashes = SimpleNamespace(new=lambda _, __=b"": nothing, fastest=lambda: "none")
    try:
        yield
    finally:
        hashed_file.hashes = file_hashes


class Bench:
    """A model, and every way to save and to load it."""

    def __init__(self, root: Path, mib: int) -> None:
        self.root, self.mib = root, mib
        self.plain, self.ours = root / "plain", root / "ours"
        self.device = device_of(local_rank=0)
        self.on_gpu = self.device.type == "cuda"
        self.parts = {"model": state(mib, self.device)}
        self.into = {"model": state(mib, self.device)}
        self.rows: dict[str, Row] = {}
        self.memory: dict[str, float] = {}  # MiB that stay in use, by the kind of copy

    def row(self, name: str, work: Callable[[], object]) -> None:
        def done() -> None:
            work()
            if self.on_gpu:
                torch.cuda.synchronize()

        self.rows.setdefault(name, Row()).time(done)

    def checkpoints(self, **options: Any) -> Any:
        from toolkit.training.checkpoint.checkpointer import Checkpointer
        from toolkit.training.checkpoint.dcp_codec import DcpCodec
        from toolkit.training.distributed.process_group import Solo

        return Checkpointer(self.ours, Solo(), **{"codec": DcpCodec(), **options})

    def bare_save(self, *, fsync: bool) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        writer = dcp.FileSystemWriter(self.plain, sync_files=fsync)
        dcp.save({"model": get_model_state_dict(self.parts["model"])}, storage_writer=writer)

    def bare_load(self) -> None:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        model = {"model": get_model_state_dict(self.into["model"])}
        dcp.load(model, checkpoint_id=self.plain)

    def save(self, **options: Any) -> None:
        self.checkpoints().save(self.parts, step=1, facts={}, **options)

    def clear(self) -> None:
        """Delete all files and flush all pending writes to the disk."""
        for folder in (self.plain, self.ours):
            shutil.rmtree(folder, ignore_errors=True)
        os.sync()

    def saves(self) -> None:
        for fsync, name in ((False, "dcp.save, no fsync"), (True, "dcp.save")):
            self.clear()
            self.row(name, lambda fsync=fsync: self.bare_save(fsync=fsync))
        self.clear()
        with unhashed():
            self.row("save, without hashes", lambda: self.save(urgent=True))
        self.clear()
        self.row("save", lambda: self.save(urgent=True))
        self.clear()
        self.row("save, and read back", self.save)

    def loads(self) -> None:
        """Measure loads from the page cache.

        The time of a disk would be the same for all.
        """
        self.clear()
        self.bare_save(fsync=True)
        self.save()
        for path in self.root.rglob("*"):
            if path.is_file():
                path.read_bytes()
        self.row("dcp.load", self.bare_load)
        self.row("load, verified", lambda: self.checkpoints().load(self.into))
        with unhashed_reads():
            self.row("load, without hashes", lambda: self.checkpoints().load(self.into))

    def stalls(self, rounds: int) -> None:
        """Measure background saves: their stall, and their copies.

        The copies are in memory or on the local disk.
        """
        from toolkit.training.checkpoint.dcp_codec import DcpCodec
        from toolkit.training.checkpoint.local_disk import ViaLocalDisk
        from toolkit.training.distributed.process_group import Solo

        local = ViaLocalDisk(DcpCodec(), self.root / "local", Solo())
        self.in_background("by local disk", local, rounds)
        self.in_background("in memory", DcpCodec(), rounds)
        try:
            self.in_torchs_background(rounds)
        except (Exception, CheckpointException) as error:  # noqa: BLE001  # not at our rows' cost
            sys.stderr.write(f"dcp.async_save is not measured: {error!r}\n")
            for name in (ASYNC_SAVE, f"{ASYNC_SAVE}, the first", "from dcp.async_save to written"):
                self.rows.pop(name, None)
        if self.on_gpu:
            self.copies(rounds)

    def in_background(self, name: str, codec: Codec, rounds: int) -> None:
        self.clear()
        behind, before = self.checkpoints(background=True, codec=codec), resident_mib()
        for step in range(rounds + 1):
            first = ", the first" if step == 0 else ""
            self.row(
                f"stall, copied {name}{first}",
                lambda step=step: behind.start_save(self.parts, step=step, facts={}),
            )
            self.row(f"from {name} to committed", behind.wait_for_save)
        self.memory[name] = resident_mib() - before

    def in_torchs_background(self, rounds: int) -> None:
        """Measure the peer: dcp.async_save, whose stager keeps its memory as ours does.

        Its memory is pinned on a GPU. torch's default stager makes new memory for each save.
        """
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        self.clear()
        before = resident_mib()
        gpu = self.on_gpu
        stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=gpu,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=gpu,
            )
        )
        futures: list[Any] = []

        def start() -> None:
            model = {"model": get_model_state_dict(self.parts["model"])}
            writer = dcp.FileSystemWriter(self.plain)
            futures.append(dcp.async_save(model, storage_writer=writer, async_stager=stager))

        for step in range(rounds + 1):
            self.row(f"{ASYNC_SAVE}{', the first' if step == 0 else ''}", start)
            self.row("from dcp.async_save to written", futures[-1].result)
        self.memory["by dcp.async_save"] = resident_mib() - before
        stager.close()

    def copies(self, rounds: int) -> None:
        """Measure copies alone: of shards as FSDP2 has them, and the bound.

        The bound is a copy to memory that torch pinned before.
        """
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        from toolkit.training.checkpoint.staging import Staging

        weights = [weight.detach() for weight in self.parts["model"].values()]
        pinned = [torch.empty_like(weight, device="cpu", pin_memory=True) for weight in weights]

        def copy() -> None:
            for source, target in zip(weights, pinned, strict=True):
                target.copy_(source, non_blocking=True)

        for _ in range(rounds):
            self.row("bound of a copy to pinned memory", copy)
        dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cuda", (1,))
        shards = [distribute_tensor(weight, mesh, [Shard(0)]) for weight in weights]
        staging, before = Staging(), resident_mib()
        for step in range(rounds + 1):
            first = ", the first" if step == 0 else ""
            self.row(f"copy of shards in memory{first}", lambda: staging.copy(shards))
        self.memory["of shards in memory"] = resident_mib() - before
        dist.destroy_process_group()

    def hashes(self) -> None:
        """Measure each hash algorithm on one core."""
        block = os.urandom(16 << 20)

        def over(made: Callable[[bytes], Any]) -> None:
            for _ in range(self.mib // 16):
                made(block).digest()

        self.row("xxh3-128 alone", lambda: over(xxhash.xxh3_128))
        for name in ("sha256", "blake2b"):
            self.row(f"{name} alone", lambda name=name: over(getattr(hashlib, name)))
        try:
            from blake3 import blake3
        except ImportError:
            return
        self.row("blake3 alone", lambda: over(blake3))


@contextmanager
def unhashed_reads() -> Iterator[None]:
    """Turn the hashes off for loads, and accept every block."""
    from toolkit.training.checkpoint import hashed_file

    class Equal(str):
        __hash__ = str.__hash__
        __slots__ = ()

        def __ne__(self, _: object) -> bool:
            return False

    good = SimpleNamespace(digest=lambda: b"", hexdigest=Equal)
    hashed_file.hashes = SimpleNamespace(new=lambda _, __: good)
    try:
        yield
    finally:
        hashed_file.hashes = file_hashes


AGAINST = {
    "dcp.save, no fsync": "dcp.save",
    "save, without hashes": "dcp.save",
    "save": "dcp.save",
    "save, and read back": "dcp.save",
    "load, verified": "dcp.load",
    "load, without hashes": "dcp.load",
    "stall, copied in memory": ASYNC_SAVE,
    "stall, copied in memory, the first": f"{ASYNC_SAVE}, the first",
}
AGAINST_ON_GPU = {"copy of shards in memory": "bound of a copy to pinned memory"}
OVERHEADS = {
    "hashes of a save": ("save", "save, without hashes"),
    "hashes of a load": ("load, verified", "load, without hashes"),
}


def ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def report(rows: dict[str, Row]) -> dict[str, dict[str, float]]:
    found = {}
    for name, row in rows.items():
        found[name] = {"wall": statistics.median(row.wall), "cpu": statistics.median(row.cpu)}
        if (peer := (AGAINST | AGAINST_ON_GPU).get(name)) in rows:
            found[name]["ratio"] = ratio(row.wall, rows[peer].wall)
    for name, (one, other) in OVERHEADS.items():
        found[name] = {
            "wall": ratio(rows[one].wall, rows[other].wall) - 1,
            "cpu": ratio(rows[one].cpu, rows[other].cpu) - 1,
        }
    return found


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def main() -> None:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    root = Path(sys.argv[1]) / "checkpoints-bench"
    mib, rounds = (*map(int, sys.argv[2:4]), *(512, ROUNDS)[len(sys.argv[2:4]) :])
    root.mkdir(parents=True, exist_ok=True)
    bench = Bench(root, mib)
    try:
        for _ in range(rounds):
            bench.saves()
            bench.loads()
            bench.hashes()
        bench.stalls(rounds)
        found = report(bench.rows)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for name, row in found.items():
        cells = "  ".join(f"{key} {value:7.3f}" for key, value in row.items())
        sys.stdout.write(f"{name:40}{cells}\n")
    load = round(os.getloadavg()[0], 1)
    for kind, taken in bench.memory.items():
        sys.stdout.write(f"memory that copies take {kind}: {taken:.0f} MiB\n")
    rounded = {name: {k: round(v, 3) for k, v in row.items()} for name, row in found.items()}
    sys.stdout.write(
        json.dumps(
            {"mib": mib, "rounds": rounds, "device": name_of(bench.device), "load": load}
            | {"memory": bench.memory}
            | rounded
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
