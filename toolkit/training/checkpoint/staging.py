"""A copy of a rank's state in its own memory, so that training can go on while the copy is written.

The copies of the last save are used again: new memory would cost more time than the copying. With a
GPU they are pinned, which the copy from it is several times faster for.
"""

import copy
from typing import Any


class Staging:
    """Copies trees of dicts, lists and tensors (DTensors by their local shard) to the CPU."""

    def __init__(self) -> None:
        self._last: Any = None

    def copy(self, tree: Any) -> Any:
        """The tree as it is now. The copy before this one is overwritten: its save must be over."""
        import torch

        self._last = _copied(tree, self._last)
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the copies above were only begun
        return self._last


def _copied(value: Any, last: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _tensor(value.detach(), last)
    if isinstance(value, dict):
        old = last if isinstance(last, dict) else {}
        return {key: _copied(item, old.get(key)) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        same = isinstance(last, list | tuple) and len(last) == len(value)
        old_items = last if same else [None] * len(value)
        return type(value)(_copied(*pair) for pair in zip(value, old_items, strict=True))
    return copy.deepcopy(value)


def _tensor(value: Any, last: Any) -> Any:
    import torch

    if _alike(value, last):
        _local(last).copy_(_local(value), non_blocking=True)
        return last
    made = value.to("cpu", copy=True)
    if torch.cuda.is_available() and not hasattr(made, "to_local") and made.numel():
        made = made.pin_memory()
    return made


def _alike(value: Any, last: Any) -> bool:
    if type(last) is not type(value):
        return False
    new, old = _local(value), _local(last)
    return bool(new.shape == old.shape and new.dtype == old.dtype and old.is_contiguous())


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
