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
        self._last: Any = None

    def copy(self, tree: Any) -> Any:
        """Return a copy of the tree as it is now.

        It overwrites the copy before, whose save must be over.
        """
        import torch

        self._last = _copied(tree, self._last)
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # waits for the copies that were begun above
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
