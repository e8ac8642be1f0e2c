"""Check whether an allocation works together: GPUs, network, shared folder, clocks.

Every rank tests what it has and fills in a `Report`; rank 0 judges them all. smoke.sbatch runs it
through torchrun. The exit code is 0 when everything works.
"""

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from toolkit.training.attempt.attempt import current
from toolkit.training.distributed.process_group import World, join
from toolkit.training.io.durable_files import write_atomic

PATIENCE = timedelta(seconds=90)  # the longest wait of a collective
LARGEST_SKEW = 2.0  # seconds between the clocks
PROBE_MIB = 16  # of the file, and of the tensor that measures the network
SLOW_DISK_MIB_S = 20.0
SIDE = 1024  # of the matrices that a GPU multiplies
ROUNDING = 1e-9  # the largest error of a right product


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one rank."""

    rank: int
    host: str
    gpu: str
    gpu_problem: str
    wanted_gpus: int  # GPUs that Slurm gave the job on this node
    sum_ok: bool  # sums over all ranks are right
    network: float  # MiB/s; 0 when there is nothing to measure
    disk: float  # MiB/s
    unseen: tuple[str, ...]  # files of other ranks that can't be read here
    clock: float  # epoch seconds


def judge(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return the faults, one sentence each."""
    wrong = []
    for one in reports:
        if one.gpu_problem:
            wrong.append(f"{one.host}, rank {one.rank}: {one.gpu_problem}")
        if not one.sum_ok:
            wrong.append(f"{one.host}, rank {one.rank}: the ranks' sum came out wrong")
        if one.unseen:
            names = ", ".join(one.unseen[:3])
            wrong.append(f"{one.host}, rank {one.rank}: does not see what others wrote: {names}")
        if 0 < one.disk < SLOW_DISK_MIB_S:
            wrong.append(f"{one.host}: writes {one.disk:.0f} MiB/s: a checkpoint would take long")
    clocks = [one.clock for one in reports]
    if clocks and max(clocks) - min(clocks) > LARGEST_SKEW:
        late = min(reports, key=lambda one: one.clock)
        skew = max(clocks) - min(clocks)
        wrong.append(f"{late.host}: its clock is {skew:.1f} s behind: is chrony running?")
    return tuple(dict.fromkeys(wrong))


def lines(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return one line a rank, for people."""
    return tuple(
        f"rank {one.rank} on {one.host}: {one.gpu}, network {one.network:.0f} MiB/s,"
        f" disk {one.disk:.0f} MiB/s"
        for one in reports
    )


def look(world: World, folder: Path, environment: Mapping[str, str]) -> Report:
    """Return this rank's report. Collective."""
    gpu, problem = _gpu(world.local_rank, environment)
    disk = _write(folder, world.rank)
    names = world.gather(f"rank-{world.rank}")  # all have written
    unseen = tuple(name for name in names if not (folder / name).exists())
    sum_ok, network = _network(world)
    world.gather(None)
    return Report(
        rank=world.rank,
        host=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        gpu=gpu,
        gpu_problem=problem,
        wanted_gpus=_wanted(environment),
        sum_ok=sum_ok,
        network=network,
        disk=disk,
        unseen=unseen,
        clock=time.time(),
    )


def _wanted(environment: Mapping[str, str]) -> int:
    found = environment.get("SLURM_GPUS_ON_NODE", "0")
    return int(found) if found.isdecimal() else 0


def _gpu(local_rank: int, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the GPU's name, and its fault or "".

    A pretended GPU has no driver, and its name says so.
    """
    import torch

    if not torch.cuda.is_available():
        driver = Path("/proc/driver/nvidia").exists() or Path("/dev/nvidia0").exists()
        if driver and _wanted(environment):
            return "GPU unusable", "an NVIDIA driver is there and torch can't use it"
        return ("GPU pretended" if _wanted(environment) else "no GPU"), ""
    if local_rank >= torch.cuda.device_count():
        return "GPU missing", f"sees {torch.cuda.device_count()} GPUs, and is the next"
    try:
        device = torch.device("cuda", local_rank)
        square = torch.randn(SIDE, SIDE, device=device, dtype=torch.float64)
        error = float(
            (square @ torch.eye(SIDE, device=device, dtype=torch.float64) - square).abs().max()
        )
        name = torch.cuda.get_device_name(device)
    except RuntimeError as failure:
        return "GPU broken", str(failure).splitlines()[0][:200]
    return name, f"{name} multiplies wrong (off by {error:.1e})" if error > ROUNDING else ""


def _write(folder: Path, rank: int) -> float:
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    write_atomic(folder / f"rank-{rank}", os.urandom(1 << 20) * PROBE_MIB)
    return PROBE_MIB / max(1e-6, time.monotonic() - began)


def _network(world: World) -> tuple[bool, float]:
    """Return whether sums over all ranks are right, and MiB/s.

    A small and a large sum are tested. The large one is timed; 0.0 with one rank.
    """
    total = world.start_sum([world.rank + 1])()[0]
    right = total == world.size * (world.size + 1) // 2
    if world.size == 1:
        return right, 0.0
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    probe = torch.ones(PROBE_MIB * (1 << 20) // 4, device=device)
    dist.all_reduce(probe)  # the first one sets up the connections
    began = time.monotonic()
    dist.all_reduce(probe)
    right = right and float(probe[-1].item()) == float(world.size**2)
    return right, PROBE_MIB / max(1e-6, time.monotonic() - began)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink(missing_ok=True)
    folder.rmdir()


def main(_arguments: Sequence[str] = ()) -> int:
    """Check this rank, and on rank 0 print the result.

    Every rank runs it. Returns the exit code: 1 when something is wrong.
    """
    attempt = current()
    folder = attempt.run_dir / f"smoke.{attempt.key}"
    world = join(timeout=PATIENCE)
    reports: list[Any] = world.gather(look(world, folder, os.environ))
    wrong = judge(reports)
    world.gather(None)  # all ranks have read the files
    if world.rank == 0:
        _remove(folder)
        for line in lines(reports):
            sys.stdout.write(f"[toolkit] {line}\n")
        for line in wrong:
            sys.stdout.write(f"[toolkit] WRONG: {line}\n")
        verdict = f"{len(wrong)} things are wrong" if wrong else "everything works"
        sys.stdout.write(f"[toolkit] {world.size} ranks: {verdict}\n")
        sys.stdout.flush()
    world.close()
    return 1 if wrong else 0
