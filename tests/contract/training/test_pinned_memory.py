"""Copies of a GPU's state: in memory that is locked once, as much as needed, as long as needed.

The driver is a stand-in, which keeps what is locked, and tensors of the CPU count as a GPU's. On an
H100 the same was tried by hand (docs/benchmarks.md).
"""

import gc
import io
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from toolkit.training.checkpoint import pinned_memory, staging
from toolkit.training.checkpoint.staging import Staging


class Driver:
    """A CUDA runtime that locks memory; it refuses more than `limit` bytes together."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.locked: dict[int, int] = {}
        self.calls = 0

    def cudaHostRegister(self, address: int, size: int, _flags: int) -> int:  # noqa: N802  # CUDA's
        self.calls += 1
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
    return made


@pytest.fixture
def gpu(driver, monkeypatch):
    """The devices that were waited for; every tensor counts as a GPU's."""
    devices = []
    monkeypatch.setattr(staging, "_is_on_gpu", lambda _: True)
    monkeypatch.setattr(staging, "_synchronize", devices.append)
    return devices


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


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


def test_memory_that_the_driver_refuses_to_lock_serves_unlocked(driver, monkeypatch, capsys):
    cleared = []
    monkeypatch.setattr(pinned_memory, "_clear_error", lambda: cleared.append(1))
    driver.limit = 1000
    (made,) = pinned_memory.empty_like([torch.empty(1000)])
    assert torch.equal(made.fill_(3), torch.full((1000,), 3.0))
    assert (driver.locked, cleared) == ({}, [1])
    assert "copies of the state are slower" in capsys.readouterr().out


def mapping_flags(address: int) -> list[str]:
    """Return Linux's flags of the mapping that has an address (man proc_pid_smaps)."""
    is_here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if mapping := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_here = int(mapping[1], 16) <= address < int(mapping[2], 16)
        elif is_here and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise LookupError(f"no mapping has {address:x}")


def test_a_forked_process_gets_none_of_the_memory(driver):
    (made,) = pinned_memory.empty_like([torch.empty(1 << 20)])
    assert "dc" in mapping_flags(made.data_ptr())


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


def test_a_gpus_state_of_any_shape_is_copied_and_locked_once_a_save(driver, gpu, mesh):
    state = {
        "model": {"w": torch.randn(5, 3), "b": torch.randn(2)},
        "optimizer": [torch.zeros(()), (torch.arange(3), {"m": torch.randn(4, 2).t()})],
        "shards": {"s": distribute_tensor(torch.randn(6, 2), mesh, [Shard(0)])},
        "empty": torch.empty(0, 7),
        "step": 3,
    }
    copied = Staging().copy(state)
    shard = copied["shards"]["s"]
    assert isinstance(shard, DTensor)
    assert shard.placements == (Shard(0),)
    assert torch.equal(shard.to_local(), state["shards"]["s"].to_local())
    assert torch.equal(copied["model"]["w"], state["model"]["w"])
    assert torch.equal(copied["model"]["b"], state["model"]["b"])
    number, (indexes, rest) = copied["optimizer"]
    assert torch.equal(number, torch.zeros(()))
    assert torch.equal(indexes, torch.arange(3))
    assert torch.equal(rest["m"], state["optimizer"][1][1]["m"])
    assert (copied["empty"].shape, copied["step"]) == ((0, 7), 3)
    assert (driver.calls, gpu) == (1, [torch.device("cpu")])


def test_only_tensors_that_changed_their_layout_get_new_memory(driver, gpu):
    state = {"w": torch.ones(100), "m": torch.ones(50)}
    made = Staging()
    kept = made.copy(state)["w"].data_ptr()
    state |= {"m": torch.full((7, 9), 2.0), "v": torch.full((3,), 4.0)}
    copied = made.copy(state)
    assert copied["w"].data_ptr() == kept
    assert torch.equal(copied["m"], state["m"])
    assert torch.equal(copied["v"], state["v"])
    assert driver.calls == 2


def test_a_copy_that_fails_waits_for_the_gpu_and_the_next_one_is_whole(driver, gpu):
    class Refuses:
        def __deepcopy__(self, _: object) -> "Refuses":
            raise ValueError("no copy of this")

    made, state = Staging(), {"w": torch.ones(5), "x": Refuses()}
    with pytest.raises(ValueError, match="no copy of this"):
        made.copy(state)
    assert gpu == [torch.device("cpu")]
    gc.collect()
    assert driver.locked == {}
    assert torch.equal(made.copy({"w": torch.ones(5)})["w"], torch.ones(5))


def test_a_tensor_that_is_more_than_its_bytes_is_copied_as_what_it_is(driver, gpu):
    complex_numbers = torch.tensor([1 + 2j, 3 - 1j])
    state = {"sparse": torch.eye(3).to_sparse(), "conjugate": complex_numbers.conj()}
    copied = Staging().copy(state)
    assert copied["sparse"].is_sparse
    assert torch.equal(copied["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(copied["conjugate"].resolve_conj(), torch.tensor([1 - 2j, 3 + 1j]))
    assert driver.calls == 0
