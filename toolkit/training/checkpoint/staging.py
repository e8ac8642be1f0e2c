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

        It overwrites the copy before, whose save must be over. Raises OSError if there is no memory
        for it.
        """
        gpu_shards = list(_gpu_shards(tree, self._previous))
        new_shards = [shard for shard, has_memory in gpu_shards if not has_memory]
        pinned_shards = iter(pinned_memory.empty_like(new_shards))
        try:
            self._previous = _copy_tree(tree, self._previous, pinned_shards)
        finally:
            # Waits for the copies that were begun, also before their memory is freed.
            for device in {shard.device for shard, _ in gpu_shards}:
                _synchronize(device)
        return self._previous


def _gpu_shards(value: Any, previous: Any) -> Iterator[tuple[Any, bool]]:
    """Yield each shard of a GPU, and whether it has memory already."""
    import torch

    if isinstance(value, torch.Tensor):
        detached = value.detach()
        if _is_ordinary(detached) and _is_on_gpu(detached):
            yield _local_shard(detached), _same_layout(detached, previous)
    for item, previous_item in _children(value, previous):
        yield from _gpu_shards(item, previous_item)


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
    if not _is_ordinary(value):
        return value.to("cpu", copy=True)
    on_gpu = _is_on_gpu(value)
    if not _same_layout(value, previous):
        previous = _with_shard(value, next(pinned_shards)) if on_gpu else _empty_on_cpu(value)
    _local_shard(previous).copy_(_local_shard(value), non_blocking=on_gpu)
    return previous


def _is_ordinary(value: Any) -> bool:
    """Return whether a shard is only bytes, a shape and a dtype.

    Others have a copy of their own kind, in new memory.
    """
    import torch

    shard = _local_shard(value)
    return (
        type(shard) is torch.Tensor
        and shard.layout == torch.strided
        and not (shard.is_quantized or shard.is_nested or shard.is_conj() or shard.is_neg())
    )


def _is_on_gpu(value: Any) -> bool:
    return bool(value.is_cuda)


def _synchronize(device: Any) -> None:
    import torch

    torch.cuda.synchronize(device)


def _empty_on_cpu(value: Any) -> Any:
    import torch

    return torch.empty_like(value, device="cpu")


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


def _with_shard(value: Any, shard: Any) -> Any:
    """Return the shard as the tensor is: alone or in a DTensor."""
    if not hasattr(value, "to_local"):
        return shard
    copied = _empty_on_cpu(value)
    copied._local_tensor = shard  # noqa: SLF001  # as torch does in _create_cpu_state_dict
    return copied
