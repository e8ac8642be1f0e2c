"""The three sizes of the test on AWS: their nodes, their deadlines, and what must be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
BUILDER_TYPE: Final = "c7i.2xlarge"
HEAD_TYPE: Final = "m7i.large"
CLEANUP_MINUTES: Final = 20.0
# Each size's script runs the one before it.
SCRIPTS: Final = ("small", "gpu", "efa")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A section of a job's output, and the pattern that must be in it."""

    section: str
    pattern: str
    on_aws_only: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster of one pool, and a job on all of its nodes."""

    name: str
    node_type: str
    nodes: int
    minutes: float  # from its start to the clean-up
    cpus: int
    memory_gib: int
    expectations: tuple[Expectation, ...]
    gpus: int = 0
    gpu: str = ""
    efa: int = 0

    @property
    def cluster(self) -> str:
        """Return its cluster's name, which is fixed, so leftovers are found."""
        return f"aws-test-{self.name}"

    @property
    def scripts(self) -> tuple[Path, ...]:
        """Return the scripts that it runs, and its own at the end."""
        names = SCRIPTS[: SCRIPTS.index(self.name) + 1]
        return tuple(HERE / f"{name}.sbatch" for name in names)


_ALWAYS: Final = (
    Expectation("shared", r"\blustre\b", on_aws_only=True),
    Expectation("work", r"^[0-9a-f]{64} "),
    Expectation("memlock", r"^(unlimited|\d+)$"),
)
_GPU: Final = (
    Expectation("gpus", r"NVIDIA"),
    Expectation("nccl", r"^\[toolkit\] \d+ ranks: everything works$"),
)
SIZES: Final = {
    size.name: size
    for size in (
        Size("small", "c7i.large", 1, 90, 2, 4, _ALWAYS),
        Size("gpu", "g5.xlarge", 1, 120, 4, 16, (*_ALWAYS, *_GPU), 1, "a10g"),
        Size(
            "efa",
            "g4dn.8xlarge",
            2,
            120,
            32,
            128,
            (
                *_ALWAYS,
                *_GPU,
                Expectation("memlock", r"^unlimited$"),
                Expectation("fabric", r"provider: efa"),
                Expectation("nccl", r"NET/OFI"),
            ),
            1,
            "t4",
            1,
        ),
    )
}
# Types for --type, where a size's own is sold out. EFA's GPUDirect needs a p5.
_OTHER: Final = {
    "c7i.xlarge": (4, 8, 0, ""),
    "g5.2xlarge": (8, 32, 1, "a10g"),
    "g6.xlarge": (4, 16, 1, "l4"),
    "g5.8xlarge": (32, 128, 1, "a10g"),
    "p5.4xlarge": (16, 256, 1, "h100"),
}


def sized(name: str, node_type: str = "", minutes: float | None = None) -> Size:
    """Return a size, with another type or a shorter deadline.

    Raises SystemExit for a type whose shape is not known here.
    """
    size = SIZES[name]
    if node_type and node_type != size.node_type:
        if node_type not in _OTHER:
            raise SystemExit(f"{node_type}: expected one of {', '.join(_OTHER)}")
        cpus, memory, gpus, gpu = _OTHER[node_type]
        size = replace(size, node_type=node_type, cpus=cpus, memory_gib=memory, gpus=gpus, gpu=gpu)
    return size if minutes is None else replace(size, minutes=min(minutes, size.minutes))
