"""Memory for a GPU's copies: as much as the tensors need, locked once and as long as one lives.

The driver is a stand-in, which keeps what is locked. `make gpu` has the real one.
"""

import gc
import io

import pytest
import torch

from toolkit.training.checkpoint import pinned_memory
from toolkit.training.checkpoint.staging import Staging


class Driver:
    """A CUDA runtime that locks memory; it refuses more than `limit` bytes together."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.locked: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size: int, _flags: int) -> int:  # noqa: N802  # CUDA's
        if sum(self.locked.values()) + size > self.limit:
            return 2  # cudaErrorMemoryAllocation
        self.locked[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802  # CUDA's
        del self.locked[address]
        return 0


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)

    def check_error(code):
        if code:
            raise RuntimeError(f"CUDA error {code}")

    monkeypatch.setattr(torch.cuda, "check_error", check_error)
    return made


def test_all_tensors_share_one_piece_of_about_their_size(driver):
    likes = [torch.empty(5760, 40), torch.empty(3, dtype=torch.bfloat16), torch.empty(0, 4)]
    made = pinned_memory.empty_like(likes)
    assert [(t.shape, t.dtype) for t in made] == [(t.shape, t.dtype) for t in likes]
    assert list(driver.locked.values()) == [5760 * 40 * 4 + 512]


def test_the_memory_stays_locked_until_the_last_tensor_is_gone(driver):
    first, second = pinned_memory.empty_like([torch.empty(100), torch.empty(7)])
    part = second[3:]
    del first, second
    gc.collect()
    assert len(driver.locked) == 1
    del part
    gc.collect()
    assert driver.locked == {}


def test_memory_that_the_driver_does_not_lock_is_an_error(driver):
    driver.limit = 1000
    with pytest.raises(RuntimeError, match="CUDA error 2"):
        pinned_memory.empty_like([torch.empty(1000)])
    assert driver.locked == {}


def test_strides_are_kept_and_no_tensor_reaches_into_another(driver):
    weights = torch.arange(24.0).view(2, 3, 2, 2).to(memory_format=torch.channels_last)
    copies = pinned_memory.empty_like([weights, torch.empty(9)])
    for copied in copies:
        copied.fill_(1)
    copies[0].copy_(weights)
    assert copies[0].stride() == weights.stride()
    assert torch.equal(copies[0], weights)
    assert torch.equal(copies[1], torch.ones(9))


def test_a_saved_tensor_brings_no_other_tensor_with_it(driver):
    small, _ = pinned_memory.empty_like([torch.empty(4), torch.empty(1 << 20)])
    stream = io.BytesIO()
    torch.save(small, stream)
    assert len(stream.getvalue()) < 1 << 14


def test_a_copy_takes_the_memory_of_the_copy_before():
    state = {"model": {"w": torch.ones(4, 6).t(), "b": torch.zeros(3)}, "step": [1, (2, "x")]}
    staging = Staging()
    first = staging.copy(state)
    addresses = [tensor.data_ptr() for tensor in first["model"].values()]
    state["model"]["w"].fill_(5)
    state["step"][0] = 2
    second = staging.copy(state)
    assert [tensor.data_ptr() for tensor in second["model"].values()] == addresses
    assert torch.equal(second["model"]["w"], torch.full((6, 4), 5.0))
    assert second["step"] == [2, (2, "x")]
    state["model"]["w"].fill_(7)
    assert torch.equal(second["model"]["w"], torch.full((6, 4), 5.0))
