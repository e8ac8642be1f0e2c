"""The random generators of Python, numpy and torch.

A training step may draw from each.
"""

import random

import numpy as np
import torch


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  # scripts draw from this one
    torch.manual_seed(number)


def draw() -> tuple[float, float, float]:
    """Draw a number of each generator.

    Python's and numpy's keep a second number for the next draw.
    """
    return random.gauss(), float(np.random.standard_normal()), float(torch.randn(()))  # noqa: NPY002  # as above


def states() -> list[float | str | None]:
    """Return the states from which the next numbers follow."""
    _, internal, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  # as above
    return [*internal, gauss, name, *keys.tolist(), *rest, *torch.get_rng_state().tolist()]
