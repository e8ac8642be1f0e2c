"""The GPUs of EC2's instance types: name, memory, peak speed.

Memory is GpuInfo of DescribeInstanceTypes, as moto 5.2.5 carries it. Families with several sizes of
a GPU's part (g6f, gr6f) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolkit.training.recording.hardware import peak_tflops


@dataclass(frozen=True, slots=True)
class Gpu:
    """A model of GPU."""

    name: str
    memory_mib: int

    @property
    def tflops(self) -> float | None:
        """Return its dense 16-bit peak; None if no table has it."""
        return peak_tflops(self.name)

    @property
    def memory_gib(self) -> float:
        return self.memory_mib / 1024


BY_FAMILY: Final = {
    "g4dn": Gpu("T4", 16_384),
    "g5": Gpu("A10G", 22_888),
    "g6": Gpu("L4", 22_888),
    "gr6": Gpu("L4", 22_888),
    "g6e": Gpu("L40S", 45_776),
    "g7e": Gpu("RTX PRO Server 6000", 98_304),
    "p3dn": Gpu("V100", 32_768),
    "p4d": Gpu("A100", 40_960),
    "p4de": Gpu("A100", 81_920),
    "p5": Gpu("H100", 81_920),
    "p5e": Gpu("H200", 144_384),
    "p5en": Gpu("H200", 144_384),
    "p6-b200": Gpu("B200", 183_359),
    "p6-b300": Gpu("B300", 275_040),
}


def gpu_of(instance_type: str) -> Gpu | None:
    """Return the GPU of an instance type, if it is known."""
    return BY_FAMILY.get(instance_type.partition(".")[0])
