"""What the ranks run on, in one line, and how fast that could be at best."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Dense tensor-core TFLOPS in 16 bits, per GPU: bf16, and fp16 for the T4, which has no bf16.
# NVIDIA's data sheets (without sparsity); A100, H100, H200, B200, L40S also as torchtitan
# (torchtitan/tools/utils.py) has them. The first whose words are all among those of the GPU's name
# counts.
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
    """The machines of an attempt by type, and the GPUs that its ranks use by name."""

    machines: tuple[tuple[str, int], ...]
    gpus: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        parts = [f"{count} x {name}" for name, count in (*self.machines, *self.gpus)]
        return ", ".join(parts) or "unknown"

    @property
    def peak_flops(self) -> float | None:
        """Of all GPUs together; None when there are none, or one that the table doesn't have."""
        peaks = [(peak_tflops(name), count) for name, count in self.gpus]
        if not peaks or any(peak is None for peak, _ in peaks):
            return None
        return sum((peak or 0.0) * count for peak, count in peaks) * 1e12


def of(instances: Iterable[Mapping[str, Any]], gpus: Iterable[str]) -> Hardware:
    """From what node boot says of the machines, and the name of each rank's GPU."""
    types = Counter(str(one.get("instance_type", "?")) for one in instances if one)
    return Hardware(tuple(sorted(types.items())), tuple(sorted(Counter(gpus).items())))


def gpus_here(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The GPU of each rank on this machine. Doesn't import torch: who uses a GPU has."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ()
    ranks = min(int(environment.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count())
    return tuple(str(torch.cuda.get_device_name(rank)) for rank in range(ranks))


def peak_tflops(gpu: str) -> float | None:
    """The table's entry for a GPU's full name; None for a part of one (MIG)."""
    words = set(re.findall(r"\w+", gpu))
    if "MIG" in words:
        return None
    return next((peak for name, peak in PEAK_TFLOPS if words.issuperset(name.split())), None)
