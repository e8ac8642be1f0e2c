"""Describe the hardware of the ranks in one line, and give its peak speed."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Dense tensor-core TFLOPS in 16 bits, per GPU: bf16, and fp16 for the T4, which has no bf16.
# Sources: NVIDIA's data sheets (without sparsity); for A100, H100, H200, B200 and L40S torchtitan
# (torchtitan/tools/utils.py) has the same. An entry fits a GPU whose name has all its words. The
# first that fits counts.
PEAK_TFLOPS: tuple[tuple[str, float], ...] = (
    ("B200", 2250.0),
    ("H200 NVL", 835.0),
    ("H200", 989.0),
    ("H100 NVL", 835.0),
    ("H100 PCIe", 756.0),
    ("H100", 989.0),
    ("A100", 312.0),
    ("L40S", 362.0),
    ("A10G", 70.0),
    ("L4", 121.0),
    ("T4", 65.0),
)


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of an attempt."""

    instance_types: tuple[tuple[str, int], ...]  # instance types, and how many of each
    gpus: tuple[tuple[str, int], ...]  # names of the ranks' GPUs, and how many of each

    def __str__(self) -> str:
        parts = [f"{count} x {name}" for name, count in (*self.instance_types, *self.gpus)]
        return ", ".join(parts) or "unknown"

    @property
    def peak_flops(self) -> float | None:
        """Return the peak of all GPUs together, in FLOP/s.

        None when there are no GPUs, or one is not in the table.
        """
        peaks = [(peak_tflops(name), count) for name, count in self.gpus]
        if not peaks or any(peak is None for peak, _ in peaks):
            return None
        return sum((peak or 0.0) * count for peak, count in peaks) * 1e12


def hardware_of(instances: Iterable[Mapping[str, Any]], gpus: Iterable[str]) -> Hardware:
    """Return the hardware, from node boot's facts and the ranks' GPU names."""
    types = Counter(str(instance.get("instance_type", "?")) for instance in instances if instance)
    return Hardware(tuple(sorted(types.items())), tuple(sorted(Counter(gpus).items())))


def gpus_here(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the GPU of each rank on this instance.

    It does not import torch: a process that uses a GPU has imported it.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ()
    ranks = min(int(environment.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count())
    return tuple(str(torch.cuda.get_device_name(rank)) for rank in range(ranks))


def peak_tflops(gpu: str) -> float | None:
    """Return the table's entry for a GPU's full name.

    None for an unknown GPU, and for a part of one (MIG).
    """
    words = set(re.findall(r"\w+", gpu))
    if "MIG" in words:
        return None
    return next((peak for name, peak in PEAK_TFLOPS if words.issuperset(name.split())), None)
