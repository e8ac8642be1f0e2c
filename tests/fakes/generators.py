"""The generators that a training step may draw from: Python's, numpy's and torch's own."""

import random

import numpy as np
import torch


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  # the one scripts draw from
    torch.manual_seed(number)


def draw() -> tuple[float, float, float]:
    """A number of each; Python's and numpy's keep a second one back."""
    return random.gauss(), float(np.random.standard_normal()), float(torch.randn(()))  # noqa: NPY002  # as above


def states() -> list[float | str | None]:
    """All that the next numbers follow from."""
    _, internal, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()  # noqa: NPY002  # as above
    return [*internal, gauss, name, *keys.tolist(), *rest, *torch.get_rng_state().tolist()]
