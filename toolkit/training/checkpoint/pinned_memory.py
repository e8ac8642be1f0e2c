"""Page-locked ("pinned") memory for copies of a GPU's tensors, about as much as they need.

A GPU copies to it about four times as fast as to other memory. torch's own pinned memory rounds
each tensor up to a power of two: the copy of a model may then take twice the model's size. Here
all tensors share one piece, which the driver locks at once. If the driver refuses, the piece stays
as it is: copies are slower then.
"""

import mmap
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from toolkit.training.attempt.job_log import log_line

_ALIGNMENT = 512  # bytes, as torch aligns its own memory


def empty_like(tensors: Sequence[Any]) -> list[Any]:
    """Return an uninitialised CPU tensor for each dense tensor of a GPU.

    It has the tensor's shape, dtype and strides. The memory of all is freed with the last of them,
    and a forked process does not have it. Raises OSError if there is no memory.
    """
    *offsets, size = _offsets(tensors)
    memory = _locked_pages(size) if size else None
    return [_view(memory, offset, like) for like, offset in zip(tensors, offsets, strict=True)]


def strides(tensor: Any) -> tuple[int, ...]:
    """Return the strides that a new tensor of the same layout has."""
    import torch

    return tuple(torch.empty_like(tensor, device="meta").stride())


def _offsets(tensors: Sequence[Any]) -> Iterator[int]:
    """Yield each tensor's first byte, and then the size of all."""
    offset = 0
    for tensor in tensors:
        yield offset
        size = tensor.numel() * tensor.element_size()
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    yield offset


def _locked_pages(size: int) -> Any:
    """Return a numpy array in locked pages of its own.

    Linux copies locked pages into each forked process at once (copy_present_pte in mm/memory.c),
    and a DataLoader's workers are such processes. So they get none of these.
    """
    import numpy as np

    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_DONTFORK)
    with suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, dtype=np.uint8)
    _lock(memory)
    return memory


def _view(memory: Any, offset: int, like: Any) -> Any:
    """Return a tensor in the memory, which it keeps.

    It has a storage of its own: torch.save writes no other tensor with it.
    """
    import torch

    if not like.numel():
        return torch.empty_like(like, device="cpu")
    flat = torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=offset)
    return flat.as_strided(like.shape, strides(like))


def _lock(memory: Any) -> None:
    """Lock an array's memory until it is freed, unless the driver refuses."""
    import torch

    runtime, address = torch.cuda.cudart(), memory.ctypes.data
    code = int(runtime.cudaHostRegister(address, memory.nbytes, 0))
    if code:
        _clear_error()
        log_line(f"copies of the state are slower: CUDA locks no memory for them (error {code})")
        return
    # The array goes before its pages. At the end of the process the driver unlocks them.
    weakref.finalize(memory, runtime.cudaHostUnregister, address).atexit = False


def _clear_error() -> None:
    """Take CUDA's last error, which a training step would raise."""
    import torch

    with suppress(RuntimeError):
        torch.zeros(1, device="cuda")
