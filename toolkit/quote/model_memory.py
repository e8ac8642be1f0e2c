"""The GPU memory that a training needs, by the size of its model.

Bytes for each parameter are those of Hugging Face's "GPU memory usage"
(https://huggingface.co/docs/transformers/model_memory_anatomy): weights, gradients, and the states
of the optimizer. With the same figures, "ZeRO" (Rajbhandari et al. 2020, section 3.1) has 16 for
mixed precision with Adam, since it keeps gradients in 16 bits.

Activations depend on batch and sequence. They are an assumption here, and the answer says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from toolkit.quote.errors import BadRequest

GIB: Final = 2**30
ACTIVATIONS: Final = 0.3
"""Assumed part on top, for activations, buffers and fragments."""
WEIGHTS_AND_GRADIENTS: Final = {"fp32": (4, 4), "mixed": (6, 4), "bf16": (2, 2)}
"""Bytes for each parameter. `mixed` keeps a copy of the weights in 32 bits beside that in 16."""
OPTIMIZER_STATES: Final = {"adamw": 2, "adamw-8bit": 0.5, "sgd-momentum": 1, "sgd": 0}
"""Numbers for each parameter, of four bytes; under `bf16` of two."""
_SIZE: Final = re.compile(r"(\d{1,6}(?:\.\d{1,4})?)([kmbt]?)", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model and how it is trained."""

    parameters: int
    precision: str = "mixed"
    optimizer: str = "adamw"

    @property
    def bytes_of_parameter(self) -> float:
        """Return weights, gradients and states of one parameter, in bytes."""
        weights, gradients = WEIGHTS_AND_GRADIENTS[self.precision]
        # bitsandbytes' states have one byte each, whatever the precision.
        width = 2 if self.precision == "bf16" and self.optimizer != "adamw-8bit" else 4
        return weights + gradients + OPTIMIZER_STATES[self.optimizer] * width

    @property
    def gib(self) -> float:
        """Return the memory over all GPUs that share the states."""
        return self.parameters * self.bytes_of_parameter * (1 + ACTIVATIONS) / GIB

    def __str__(self) -> str:
        return (
            f"{self.parameters / 1e9:g} billion parameters x {self.bytes_of_parameter:g} bytes"
            f" ({self.precision}, {self.optimizer}), and {ACTIVATIONS:.0%} assumed for activations"
        )


def parse_parameters(text: str) -> int:
    """Return the number in `7B`, `350M` or `7000000000`. Raises BadRequest."""
    match = _SIZE.fullmatch(text)
    number = float(match[1]) * _UNITS[match[2].lower()] if match else 0
    if number < 1:
        raise BadRequest(f"{text!r} is no number of parameters", next_step="write 7B or 350M")
    return int(number)
