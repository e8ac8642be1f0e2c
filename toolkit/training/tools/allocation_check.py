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
from toolkit.training.distributed.process_group import ProcessGroup, join
from toolkit.training.io.durable_files import write_atomic

COLLECTIVE_TIMEOUT = timedelta(seconds=90)  # the longest wait of a collective
MAX_CLOCK_SKEW = 2.0  # seconds between the clocks
PROBE_MIB = 16  # of the file, and of the tensor that measures the network
SLOW_DISK_MIB_S = 20.0  # unless TOOLKIT_MIN_DISK_MIB_S says otherwise
MATRIX_SIDE = 1024  # of the matrices that a GPU multiplies
MAX_ROUNDING_ERROR = 1e-9  # the largest error of a right product


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one rank."""

    rank: int
    node: str
    gpu: str
    gpu_problem: str
    granted_gpus: int  # GPUs that Slurm gave the job on this node
    sum_ok: bool  # sums over all ranks are right
    network: float  # MiB/s; 0 when there is nothing to measure
    disk: float  # MiB/s
    unseen_files: tuple[str, ...]  # files of other ranks that can't be read here
    clock: float  # epoch seconds


def find_faults(reports: Sequence[Report], slow_disk: float = SLOW_DISK_MIB_S) -> tuple[str, ...]:
    """Return the faults, one sentence each.

    A disk below `slow_disk` MiB/s is one; 0 accepts any.
    """
    faults = []
    for report in reports:
        if report.gpu_problem:
            faults.append(f"{report.node}, rank {report.rank}: {report.gpu_problem}")
        if not report.sum_ok:
            faults.append(f"{report.node}, rank {report.rank}: the sum over all ranks is wrong")
        if report.unseen_files:
            names = ", ".join(report.unseen_files[:3])
            faults.append(
                f"{report.node}, rank {report.rank}: can't see the files of other ranks: {names}"
            )
        if 0 < report.disk < slow_disk:
            faults.append(
                f"{report.node}: writes only {report.disk:.0f} MiB/s: checkpoints will be slow"
            )
    clocks = [report.clock for report in reports]
    if clocks and max(clocks) - min(clocks) > MAX_CLOCK_SKEW:
        slowest = min(reports, key=lambda report: report.clock)
        skew = max(clocks) - min(clocks)
        faults.append(f"{slowest.node}: its clock is {skew:.1f} s behind: is chrony running?")
    return tuple(dict.fromkeys(faults))


def report_lines(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return one line a rank, for people."""
    return tuple(
        f"rank {report.rank} on {report.node}: {report.gpu}, network {report.network:.0f} MiB/s,"
        f" disk {report.disk:.0f} MiB/s"
        for report in reports
    )


def check_rank(world: ProcessGroup, folder: Path, environment: Mapping[str, str]) -> Report:
    """Return this rank's report. Collective."""
    gpu, problem = _check_gpu(world.local_rank, environment)
    disk = _measure_disk(folder, world.rank)
    names = world.gather(f"rank-{world.rank}")  # all have written
    unseen_files = tuple(name for name in names if not (folder / name).exists())
    sum_ok, network = _measure_network(world)
    world.gather(None)
    return Report(
        rank=world.rank,
        node=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        gpu=gpu,
        gpu_problem=problem,
        granted_gpus=_granted_gpus(environment),
        sum_ok=sum_ok,
        network=network,
        disk=disk,
        unseen_files=unseen_files,
        clock=time.time(),
    )


def _slow_disk(environment: Mapping[str, str]) -> float:
    try:
        return float(environment.get("TOOLKIT_MIN_DISK_MIB_S") or SLOW_DISK_MIB_S)
    except ValueError:
        return SLOW_DISK_MIB_S


def _granted_gpus(environment: Mapping[str, str]) -> int:
    count = environment.get("SLURM_GPUS_ON_NODE", "0")
    return int(count) if count.isdecimal() else 0


def _check_gpu(local_rank: int, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the GPU's name, and its fault or "".

    A pretended GPU has no driver, and its name says so.
    """
    import torch

    if not torch.cuda.is_available():
        driver = Path("/proc/driver/nvidia").exists() or Path("/dev/nvidia0").exists()
        if driver and _granted_gpus(environment):
            return "GPU unusable", "the node has an NVIDIA driver, but torch can't use it"
        return ("GPU pretended" if _granted_gpus(environment) else "no GPU"), ""
    if local_rank >= torch.cuda.device_count():
        return "GPU missing", f"has no GPU: the node shows only {torch.cuda.device_count()}"
    try:
        device = torch.device("cuda", local_rank)
        square = torch.randn(MATRIX_SIDE, MATRIX_SIDE, device=device, dtype=torch.float64)
        error = float(
            (square @ torch.eye(MATRIX_SIDE, device=device, dtype=torch.float64) - square)
            .abs()
            .max()
        )
        name = torch.cuda.get_device_name(device)
    except RuntimeError as failure:
        return "GPU broken", str(failure).splitlines()[0][:200]
    return name, product_problem(name, error)


def product_problem(gpu: str, error: float) -> str:
    """Return the fault of a product, or "".

    `error` is its largest error. An error that is not a number is a fault too.
    """
    return "" if error <= MAX_ROUNDING_ERROR else f"{gpu} multiplies wrong (off by {error:.1e})"


def _measure_disk(folder: Path, rank: int) -> float:
    folder.mkdir(parents=True, exist_ok=True)
    start_time = time.monotonic()
    write_atomic(folder / f"rank-{rank}", os.urandom(1 << 20) * PROBE_MIB)
    return PROBE_MIB / max(1e-6, time.monotonic() - start_time)


def _measure_network(world: ProcessGroup) -> tuple[bool, float]:
    """Return whether sums over all ranks are right, and MiB/s.

    A small and a large sum are tested. The large one is timed; 0.0 with one rank.
    """
    total = world.start_sum([world.rank + 1])()[0]
    is_correct = total == world.size * (world.size + 1) // 2
    if world.size == 1:
        return is_correct, 0.0
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    probe = torch.ones(PROBE_MIB * (1 << 20) // 4, device=device)
    dist.all_reduce(probe)  # the first one sets up the connections
    start_time = time.monotonic()
    dist.all_reduce(probe)
    is_correct = is_correct and float(probe[-1].item()) == float(world.size**2)
    return is_correct, PROBE_MIB / max(1e-6, time.monotonic() - start_time)


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
    world = join(timeout=COLLECTIVE_TIMEOUT)
    reports: list[Any] = world.gather(check_rank(world, folder, os.environ))
    faults = find_faults(reports, _slow_disk(os.environ))
    world.gather(None)  # all ranks have read the files
    if world.rank == 0:
        _remove(folder)
        for line in report_lines(reports):
            sys.stdout.write(f"[toolkit] {line}\n")
        for line in faults:
            sys.stdout.write(f"[toolkit] WRONG: {line}\n")
        conclusion = f"{len(faults)} faults" if faults else "everything works"
        sys.stdout.write(f"[toolkit] {world.size} ranks: {conclusion}\n")
        sys.stdout.flush()
    world.close()
    return 1 if faults else 0
