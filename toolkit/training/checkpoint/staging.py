"""Copy a rank's state to its memory, so that training goes on while the copy is written.

The memory of the last save is used again: new memory would cost more time than the copying. With a
GPU the memory is pinned, which makes the copy several times faster.
"""

import copy
from typing import Any


class Staging:
    """A copier of trees of dicts, lists and tensors to the CPU.

    It copies the local shard of a DTensor.
    """

    def __init__(self) -> None:
        self._previous: Any = None

    def copy(self, tree: Any) -> Any:
        """Return a copy of the tree as it is now.

        It overwrites the copy before, whose save must be over.
        """
        import torch

        self._previous = _copy_tree(tree, self._previous)
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # waits for the copies that were begun above
        return self._previous


def _copy_tree(value: Any, previous: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _copy_tensor(value.detach(), previous)
    if isinstance(value, dict):
        previous_items = previous if isinstance(previous, dict) else {}
        return {key: _copy_tree(item, previous_items.get(key)) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        same_length = isinstance(previous, list | tuple) and len(previous) == len(value)
        previous_items_in_order = previous if same_length else [None] * len(value)
        return type(value)(
            _copy_tree(*pair) for pair in zip(value, previous_items_in_order, strict=True)
        )
    return copy.deepcopy(value)


def _copy_tensor(value: Any, previous: Any) -> Any:
    import torch

    if _same_layout(value, previous):
        _local_shard(previous).copy_(_local_shard(value), non_blocking=True)
        return previous
    new_tensor = value.to("cpu", copy=True)
    if torch.cuda.is_available() and not hasattr(new_tensor, "to_local") and new_tensor.numel():
        new_tensor = new_tensor.pin_memory()
    return new_tensor


def _same_layout(value: Any, previous: Any) -> bool:
    if type(previous) is not type(value):
        return False
    new_shard, previous_shard = _local_shard(value), _local_shard(previous)
    return bool(
        new_shard.shape == previous_shard.shape
        and new_shard.dtype == previous_shard.dtype
        and previous_shard.is_contiguous()
    )


def _local_shard(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
