"""Copy a rank's state to its memory, so that training goes on while the copy is written.

The memory of the last save is used again: new memory would cost more time than the copying. The
copy of a GPU's tensors is pinned.
"""

import copy
from collections.abc import Iterator
from typing import Any

from toolkit.training.checkpoint import pinned_memory


class Staging:
    """A copier of trees of dicts, lists and tensors to the CPU.

    It copies the local shard of a DTensor.
    """

    def __init__(self) -> None:
        self._previous: Any = None

    def copy(self, tree: Any) -> Any:
        """Return a copy of the tree as it is now.

        It overwrites the copy before, whose save must be over. Raises torch.cuda.CudaError or
        MemoryError if there is no memory for it.
        """
        import torch

        new_shards = list(_shards_without_memory(tree, self._previous))
        pinned_shards = iter(pinned_memory.empty_like(new_shards) if new_shards else ())
        self._previous = _copy_tree(tree, self._previous, pinned_shards)
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # waits for the copies that were begun above
        return self._previous


def _shards_without_memory(value: Any, previous: Any) -> Iterator[Any]:
    """Yield the GPU's shards that have no memory, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        detached = value.detach()
        if detached.is_cuda and _is_ordinary(detached) and not _same_layout(detached, previous):
            yield _local_shard(detached)
    for item, previous_item in _children(value, previous):
        yield from _shards_without_memory(item, previous_item)


def _copy_tree(value: Any, previous: Any, pinned_shards: Iterator[Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _copy_tensor(value.detach(), previous, pinned_shards)
    if not _is_branch(value):
        return copy.deepcopy(value)
    items = [_copy_tree(*pair, pinned_shards) for pair in _children(value, previous)]
    return dict(zip(value, items, strict=True)) if isinstance(value, dict) else type(value)(items)


def _is_branch(value: Any) -> bool:
    return isinstance(value, dict) or type(value) in (list, tuple)


def _children(value: Any, previous: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a branch's items, each with its earlier copy or None."""
    if isinstance(value, dict):
        previous_items = previous if isinstance(previous, dict) else {}
        yield from ((item, previous_items.get(key)) for key, item in value.items())
    elif _is_branch(value):
        same_length = isinstance(previous, list | tuple) and len(previous) == len(value)
        yield from zip(value, previous if same_length else [None] * len(value), strict=True)


def _copy_tensor(value: Any, previous: Any, pinned_shards: Iterator[Any]) -> Any:
    import torch

    if not _is_ordinary(value):
        return value.to("cpu", copy=True)
    if not _same_layout(value, previous):
        previous = torch.empty_like(value, device="cpu")
        if value.is_cuda:
            previous = _with_shard(previous, next(pinned_shards))
    _local_shard(previous).copy_(_local_shard(value), non_blocking=True)
    return previous


def _is_ordinary(value: Any) -> bool:
    """Return whether a tensor is only bytes, a shape and a dtype.

    A sparse or a quantized tensor is more.
    """
    import torch

    is_known = type(value) is torch.Tensor or hasattr(value, "to_local")
    return is_known and value.layout == torch.strided


def _same_layout(value: Any, previous: Any) -> bool:
    if type(previous) is not type(value):
        return False
    new_shard, previous_shard = _local_shard(value), _local_shard(previous)
    return bool(
        new_shard.shape == previous_shard.shape
        and new_shard.dtype == previous_shard.dtype
        and pinned_memory.strides(new_shard) == previous_shard.stride()
    )


def _local_shard(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _with_shard(tensor: Any, shard: Any) -> Any:
    """Return the tensor with this local shard; an ordinary tensor is one."""
    if not hasattr(tensor, "to_local"):
        return shard
    tensor._local_tensor = shard  # noqa: SLF001  # as torch does in _create_cpu_state_dict
    return tensor
