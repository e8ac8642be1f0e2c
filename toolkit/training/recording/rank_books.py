"""The books of a run as every rank calls them: rank 0 keeps them, the others have nothing to do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolkit.training.attempt.job_log import say
from toolkit.training.checkpoint.checkpointer import Saved
from toolkit.training.checkpoint.collective import on_rank_0
from toolkit.training.checkpoint.save_interval import StopForecast
from toolkit.training.distributed.process_group import World
from toolkit.training.distributed.step_sync import Agreed
from toolkit.training.sample_order import Batch
from toolkit.training.tracking.tracker import numbers

if TYPE_CHECKING:
    from toolkit.training.recording.recorder import Books


class RankBooks:
    """`books` are rank 0's, once they are open."""

    def __init__(self, world: World, *, print_every: int) -> None:
        self._world, self._print_every = world, print_every
        self.books: Books | None = None

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Note metrics that are of no step's own making."""
        if self.books:
            self.books.log(step, numbers(metrics))

    def describe(self, tags: Mapping[str, str]) -> None:
        """Note more about the run."""
        if self.books:
            self.books.describe({}, {f"toolkit.{name}": value for name, value in tags.items()})

    def step(self, batch: Batch, metrics: Mapping[str, Any], at: float, told: Agreed) -> None:
        """Note a step, and say of some of them how it went."""
        if not self.books:
            return
        found = numbers(metrics)
        self.books.step(batch, told.samples, told.prints, at, found)
        if batch.step % self._print_every == 0:
            values = " ".join(f"{name} {value:.5g}" for name, value in found.items())
            say(f"step {batch.step} epoch {batch.epoch} {values}")

    def sync(self) -> None:
        """The step log is on disk: on all ranks, or CheckpointFailed on all."""
        on_rank_0(self._world, lambda: self.books.sync() if self.books else None)

    def saved(self, saved: Saved, forecast: StopForecast | None) -> None:
        """Note a checkpoint, and what a stop would take where that has just been found out."""
        if self.books:
            self.books.saved(saved, forecast)

    def stalled(self, step: int, seconds: float) -> None:
        """Note that training stood still to save the state as of `step`."""
        if self.books:
            self.books.stalled(step, seconds)
