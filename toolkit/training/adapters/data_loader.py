"""Feed the run's order of samples to any trainer's data loader.

The step log records the samples that the loader was really given for the step.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from toolkit.training.errors import Unsupported
from toolkit.training.run import Run
from toolkit.training.sample_order import Batch, SampleOrder


@dataclass(frozen=True, slots=True)
class _Piece:
    """The samples that a rank takes at once. A step has several pieces when gradients are
    accumulated.
    """

    batch: Batch
    ids: Any
    last: bool


class Feed:
    """The batch sampler of this rank's loader.

    A step is taken in `pieces` pieces; the last step of an epoch in fewer.

    Each `iter` is a pass over the run's current epoch. With `from_epoch_start` it starts at the
    epoch's beginning, for trainers that skip finished steps themselves. Otherwise it starts at the
    run's next step.
    """

    def __init__(
        self, run: Run, order: SampleOrder, *, pieces: int, from_epoch_start: bool
    ) -> None:
        smallest_share = (order.size % order.global_batch or order.global_batch) // run.world.size
        if smallest_share < 1:
            raise Unsupported(
                f"the last step of an epoch has fewer samples than there are ranks"
                f" ({order.size} samples, {order.global_batch} a step, {run.world.size} ranks)",
                next_step="choose another batch size",
            )
        self.order = order
        self._run, self._from_epoch_start = run, from_epoch_start
        self.pieces = min(pieces, order.global_batch // run.world.size)  # no piece is empty
        self._pieces_in_last_step = min(self.pieces, smallest_share)
        self._handed_out: deque[_Piece] = deque()
        self._trained_ids: list[Any] = []

    def __len__(self) -> int:
        return (self.order.steps_per_epoch - 1) * self.pieces + self._pieces_in_last_step

    def __iter__(self) -> Iterator[list[int]]:
        self._handed_out.clear()
        return self._epoch_pieces(*divmod(self._run.step_count, self.order.steps_per_epoch))

    def epochs(self, steps: int) -> int:
        """Return the number of passes for that many steps."""
        return -(-steps // self.order.steps_per_epoch)

    def end_piece(self) -> Batch | None:
        """Note that a piece was trained on.

        Returns the step that it ends, or None. Call it once for each piece.
        """
        piece = self._handed_out.popleft()
        while piece.batch.step < self._run.step_count:  # the trainer skipped it
            piece = self._handed_out.popleft()
        self._trained_ids.append(piece.ids)
        if not piece.last:
            return None
        import numpy as np

        own_ids, self._trained_ids = np.concatenate(self._trained_ids), []
        return replace(piece.batch, mine=own_ids)

    def _epoch_pieces(self, epoch: int, steps_done: int) -> Iterator[list[int]]:
        import numpy as np

        steps_done = 0 if self._from_epoch_start else steps_done
        for batch in self.order.batches(
            step=epoch * self.order.steps_per_epoch + steps_done,
            position=epoch * self.order.size + steps_done * self.order.global_batch,
            epochs=epoch + 1,
            rank=self._run.world.rank,
            world_size=self._run.world.size,
        ):
            ends_epoch = batch.stop % self.order.size == 0
            count = self._pieces_in_last_step if ends_epoch else self.pieces
            for number, ids in enumerate(np.array_split(batch.mine, count), start=1):
                self._handed_out.append(_Piece(batch, ids, last=number == count))
                yield ids.tolist()


def feed_loader(loader: Any, feed: Feed) -> Any:
    """Return a data loader like `loader`, with the samples of `feed`."""
    import torch
    from torch.utils.data import DataLoader

    # The loader has its own generator, so a new pass takes no random numbers from training.
    generator = torch.Generator()
    generator.manual_seed(feed.order.seed)
    return DataLoader(
        loader.dataset,
        batch_sampler=feed,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        generator=generator,
    )


def sample_count(loader: Any) -> int:
    """Return the number of samples in the loader's data set.

    Raises Unsupported when it can't be known.
    """
    has_sampler = getattr(loader, "batch_sampler", None) is not None
    if not has_sampler or not hasattr(loader.dataset, "__len__"):
        raise Unsupported(
            "the data set has no length, so a run can't resume at a position in it",
            next_step="give a data set with __len__ and __getitem__",
        )
    return len(loader.dataset)
