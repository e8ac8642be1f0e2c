"""Compute which samples a step trains on, from (seed, epoch, position) alone.

The position counts samples over the whole run and all ranks, so it means the same on two ranks and
on three. A run that resumes with another world size sees the same samples in the same order.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_FINGERPRINT_MASK = (1 << 40) - 1  # 40 bits a sample: the sum of 8 million fits into int64


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one step, as one rank sees them."""

    step: int
    epoch: int
    start: int  # position of the first sample, counted since the run began
    stop: int  # position after the last sample
    ids: Any  # indices of the samples of all ranks, an array
    mine: Any  # indices of this rank's samples, a slice of `ids`
    # Multiply the *sum* of this rank's losses by it: DDP's mean is then the mean over `ids`.
    weight: float
    begins_epoch: bool


class SampleOrder:
    """An order of samples: one shuffled pass over `size` samples an epoch.

    A step takes `global_batch` samples over all ranks. The last step of an epoch may take fewer.
    """

    def __init__(self, size: int, global_batch: int, seed: int) -> None:
        if size < 1 or global_batch < 1:
            raise ValueError(f"size and global_batch must be at least 1: {size}, {global_batch}")
        self.size, self.global_batch, self.seed = size, global_batch, seed
        self._epoch = -1
        self._permutation: Any = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.size // self.global_batch)

    def permutation(self, epoch: int) -> Any:
        """Return the order of an epoch, an array of sample ids.

        The ids are sorted by a hash of (seed, epoch, id). The streams of numpy's and torch's
        shuffles may change between releases. A run that resumes on a newer image must not silently
        see another order.
        """
        import numpy as np

        if epoch != self._epoch:
            keys = _mix(np.arange(self.size, dtype=np.uint64), _salt(self.seed, epoch))
            self._permutation = np.argsort(keys, kind="stable")
            self._epoch = epoch
        return self._permutation

    def ids(self, start: int, stop: int) -> Any:
        """Return the sample ids at positions start to stop-1.

        Raises ValueError unless they lie in one epoch.
        """
        epoch, offset = divmod(start, self.size)
        if not 0 <= offset < offset + (stop - start) <= self.size:
            raise ValueError(f"positions {start}..{stop} are not a part of one epoch")
        return self.permutation(epoch)[offset : offset + stop - start]

    def next_stop(self, position: int) -> int:
        """Return the position where the step that begins at `position` ends.

        A step never reaches over the end of its epoch.
        """
        epoch_end = (position // self.size + 1) * self.size
        return min(position + self.global_batch, epoch_end)

    def batches(
        self, *, step: int, position: int, epochs: int, rank: int, world_size: int
    ) -> Iterator[Batch]:
        """Yield the steps from `position` to the end of the last epoch."""
        while position < epochs * self.size:
            stop = self.next_stop(position)
            ids = self.ids(position, stop)
            low, high = rank * len(ids) // world_size, (rank + 1) * len(ids) // world_size
            yield Batch(
                step=step,
                epoch=position // self.size,
                start=position,
                stop=stop,
                ids=ids,
                mine=ids[low:high],
                weight=world_size / len(ids),
                begins_epoch=position % self.size == 0,
            )
            step, position = step + 1, stop


def fingerprint(ids: Any) -> int:
    """Return a fingerprint of a set of samples.

    The fingerprints of the ranks add up to the same sum, however the samples are split.
    """
    import numpy as np

    mixed = _mix(np.asarray(ids, dtype=np.uint64), 0x5EED)
    return int((mixed & np.uint64(_FINGERPRINT_MASK)).sum(dtype=np.uint64))


def content_hash(*arrays: Any) -> str:
    """Return the sha256 over the shape, type and bytes of arrays.

    It identifies the data that a run was trained on.
    """
    import numpy as np

    digest = hashlib.sha256()
    for array in arrays:
        contiguous = np.ascontiguousarray(array)
        digest.update(f"{contiguous.dtype.str}{contiguous.shape}".encode())
        digest.update(contiguous.tobytes())
    return digest.hexdigest()


def _salt(seed: int, epoch: int) -> int:
    digest = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _mix(values: Any, salt: int) -> Any:
    """Return splitmix64 of the values.

    It is a bijection of 64-bit numbers that leaves no visible pattern.
    """
    import numpy as np

    mixed = values * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
