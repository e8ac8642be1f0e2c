"""Slurm's TRES text, e.g. `billing=4,cpu=4,gres/gpu:a10g=1,gres/gpu=1,mem=15000M,node=1`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

# Anchored: a typed `gres/gpu:a10g=1` sorts before the total `gres/gpu=1` and is part of it.
_GPU = re.compile(r"(?:^|,)gres/gpu=(\d{1,15})(?!\d)")
_TYPED_GPU = re.compile(r"(?:^|,)gres/gpu:[^=,]+=(\d{1,15})(?!\d)")
_CPU = re.compile(r"(?:^|,)cpu=(\d{1,15})(?!\d)")
_MEM = re.compile(r"(?:^|,)mem=(\d{1,15}(?:\.\d{1,15})?)(?![\d.])([KMGTP]?)")
_NUMBER = "[0-9]{1,15}"
_PART = rf"cpu={_NUMBER}|gres/gpu(?::[^=,]+)?={_NUMBER}|mem={_NUMBER}(?:\.{_NUMBER})?[KMGTP]?"
_OTHER_PART = r"(?!cpu=|mem=|gres/gpu[:=])[^=,]+=[^,]*"
_READABLE = re.compile(rf"(?:(?:{_PART}|{_OTHER_PART})(?:,(?=.)|$))*")
# sacct counts in mebibytes where no unit is given.
_MIB = {"K": Decimal(1) / 1024, "": Decimal(1), "M": Decimal(1), "G": Decimal(1024)}
_MIB |= {"T": Decimal(1024**2), "P": Decimal(1024**3)}


@dataclass(frozen=True, slots=True)
class Tres:
    """The resources allocated to an attempt, over all its nodes."""

    cpus: int = 0
    memory_mib: int = 0
    gpus: int = 0

    @staticmethod
    @lru_cache(maxsize=65_536)
    def is_readable(text: str) -> bool:
        """Return whether each part, and each amount of `parse`, can be read."""
        return _READABLE.fullmatch(text) is not None

    @classmethod
    @lru_cache(maxsize=65_536)  # a cluster's jobs ask for the same again and again
    def parse(cls, text: str) -> Tres:
        """Parse TRES text; unknown parts are ignored.

        An attempt that never started has an empty text.
        """
        mem = _MEM.search(text)
        total = _GPU.search(text)
        typed = sum(int(count) for count in _TYPED_GPU.findall(text))
        cpu = _CPU.search(text)
        return cls(
            cpus=int(cpu[1]) if cpu else 0,
            memory_mib=int(Decimal(mem[1]) * _MIB[mem[2]]) if mem else 0,
            gpus=int(total[1]) if total else typed,
        )
