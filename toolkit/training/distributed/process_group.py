"""Join the ranks of a run, and give them the few collectives that they need.

`Solo` is one process without a process group. `TorchProcessGroup` uses gloo, on a group of its own.
Its collectives never wait for a GPU and never mix with the gradients.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Protocol

from toolkit.training.attempt.job_log import log_line
from toolkit.training.distributed.straggler_report import RankWatch

Numbers = tuple[int, ...]


class ProcessGroup(Protocol):
    """A set of ranks. Every method is collective: all ranks call it, in the same order."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def torch_group(self) -> Any:
        """Return the torch.distributed group of these ranks, None without one."""
        ...

    def fork(self) -> "ProcessGroup":
        """Return the same ranks with a group of their own.

        For another thread, whose collectives must not mix with this one's.
        """
        ...

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value, on every rank."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value in order of rank, on every rank."""
        ...

    def start_sum(self, values: Sequence[int]) -> Callable[[], Numbers]:
        """Start adding up integers over the ranks.

        Returns a function: call it to wait for the sums.
        """
        ...

    def close(self) -> None: ...


class Solo:
    """A world of one rank."""

    rank = 0
    size = 1
    local_rank = 0
    torch_group = None

    def fork(self) -> ProcessGroup:
        return self

    def broadcast(self, value: Any) -> Any:
        return value

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def start_sum(self, values: Sequence[int]) -> Callable[[], Numbers]:
        result = tuple(values)
        return lambda: result

    def close(self) -> None:
        return


class TorchProcessGroup:
    """The ranks that torchrun started, over torch.distributed."""

    def __init__(self, *, rank: int, size: int, local_rank: int, timeout: timedelta) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.size, self.local_rank = rank, size, local_rank
        self._timeout = timeout
        gpu = device(local_rank).type == "cuda"
        if gpu:
            torch.cuda.set_device(local_rank)
        self._owns_default_group = not dist.is_initialized()  # a trainer may have come first
        if self._owns_default_group:
            dist.init_process_group("nccl" if gpu else "gloo", timeout=timeout)
        self.torch_group = dist.new_group(backend="gloo", timeout=timeout)
        self._dist, self._torch = dist, torch
        self._watch = self._watch_with(_status_store(self.torch_group))
        self._watch.start()

    def fork(self) -> ProcessGroup:
        forked_group = copy(self)
        forked_group.torch_group = self._dist.new_group(backend="gloo", timeout=self._timeout)
        forked_group._watch = self._watch_with(None)  # noqa: SLF001  # a watch is for the script's thread
        return forked_group

    def broadcast(self, value: Any) -> Any:
        box = [value]
        self._watch.count_collective()
        with self._watch.mark_waiting():
            self._dist.broadcast_object_list(box, src=0, group=self.torch_group)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        self._watch.count_collective()
        with self._watch.mark_waiting():
            self._dist.all_gather_object(values, value, group=self.torch_group)
        return values

    def start_sum(self, values: Sequence[int]) -> Callable[[], Numbers]:
        tensor = self._torch.tensor(list(values), dtype=self._torch.int64)
        work = self._dist.all_reduce(tensor, group=self.torch_group, async_op=True)
        self._watch.count_collective()

        def finish() -> Numbers:
            with self._watch.mark_waiting():
                work.wait()
            return tuple(tensor.tolist())

        return finish

    def close(self) -> None:
        self._watch.stop()
        if self._owns_default_group:
            self._dist.destroy_process_group()

    def _watch_with(self, store: Any) -> RankWatch:
        seconds = self._timeout.total_seconds()
        return RankWatch(store, self.rank, self.size, timeout=seconds, log_line=log_line)


def _status_store(group: Any) -> Any:
    """Return a store through which the ranks of a group exchange texts.

    It has a connection of its own. None when torch has no such store.
    """
    from torch.distributed import PrefixStore, distributed_c10d

    try:
        own = distributed_c10d._get_default_store().clone()  # noqa: SLF001  # there is no other way
    except (AttributeError, RuntimeError):  # an image's older torch; a store that has no clones
        return None
    own.set_timeout(timedelta(seconds=10))
    return PrefixStore(f"toolkit/{group.group_name}", own)


def device(local_rank: int) -> Any:
    """Return the GPU of this rank, or the CPU."""
    import torch

    gpu = torch.cuda.is_available() and local_rank < torch.cuda.device_count()
    return torch.device("cuda", local_rank) if gpu else torch.device("cpu")


def join(
    environment: Mapping[str, str] = os.environ, *, timeout: timedelta = timedelta(minutes=10)
) -> ProcessGroup:
    """Return the ranks that this process was started with.

    They are torchrun's ranks, or a world of one without torchrun. `timeout` is the longest wait of
    a collective.
    """
    if "RANK" not in environment:
        return Solo()
    return TorchProcessGroup(
        rank=int(environment["RANK"]),
        size=int(environment["WORLD_SIZE"]),
        local_rank=int(environment.get("LOCAL_RANK", "0")),
        timeout=timeout,
    )
