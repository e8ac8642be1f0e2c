"""Train as a script does: resume, take batches, end every step, finish.

All ranks make the same calls. They agree by one sum a step (step_sync). It is started at the end of
a step and read at the end of the next, so training does not wait for it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from toolkit.datasets import dataset
from toolkit.training.attempt import exception_verdict, verdict
from toolkit.training.attempt.attempt import Attempt, current
from toolkit.training.attempt.job_log import say
from toolkit.training.attempt.sigterm import OnTerminate
from toolkit.training.attempt.stop_request import StopFiles, Stopped
from toolkit.training.checkpoint.checkpointer import Checkpointer, CheckpointFailed
from toolkit.training.checkpoint.local_disk import ViaLocalDisk
from toolkit.training.checkpoint.save_schedule import Every, Saver
from toolkit.training.checkpoint.tier import Tier
from toolkit.training.checkpoint.torch_codec import Codec, TorchCodec
from toolkit.training.distributed.process_group import World, device, join
from toolkit.training.distributed.step_sync import Agreed, Boundaries
from toolkit.training.io.cluster_info import site_facts
from toolkit.training.recording import gpu_sampler
from toolkit.training.recording.close_run import Closing, refuse_second
from toolkit.training.recording.recorder import Books, Host, RankBooks, TrackerLike
from toolkit.training.reproduce import gather
from toolkit.training.run_folder.run_folder import RunDir
from toolkit.training.run_folder.stop_forecast import LEAVING
from toolkit.training.sample_order import Batch, SampleOrder
from toolkit.training.tracking.mlflow import flat, tracker_for

T = TypeVar("T")

_TRIES = 60.0  # seconds in which a stop's failed save is repeated; a notice may leave fewer


class Run:
    """The context around a training loop: `with Run(...) as run:`; see `toolkit.training`.

    `clock` gives records their time, and may be changed by the system. `timer` never jumps: it
    measures when an action is due.
    """

    def __init__(
        self,
        *,
        params: Mapping[str, Any],
        seed: int,
        checkpoint_every: Every = "auto",
        checkpoint_bounds: tuple[float, float] = (30.0, 3600.0),
        background: bool = False,
        local: Path | None = None,
        tiers: Sequence[Tier] = (),
        print_every: int = 50,
        keep: int = 2,
        flops_per_sample: float | None = None,
        attempt: Attempt | None = None,
        world: World | None = None,
        codec: Codec | None = None,
        tracker: TrackerLike | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.attempt = attempt or current()
        self.world = world or join()
        self.dir = RunDir(self.attempt.run_dir, self.attempt.owner.put)
        self.step_count = 0  # steps done; the number of the next one
        self._position = 0  # samples taken since the run began, over all ranks
        self._params, self.seed, self._flops = params, seed, flops_per_sample
        self._clock, self._timer = clock, timer
        self._noted = RankBooks(self.world, print_every=print_every)
        self._stop = StopFiles(self.attempt.stop_files, self.attempt.started_at, clock=timer)
        if local is not None:
            root = local / f"checkpoints-{self.attempt.job_id}"
            codec = ViaLocalDisk(codec or TorchCodec(), root, self.world)
        self._checkpoints = Checkpointer(
            self.dir.checkpoints,
            self.world,
            keep=keep,
            codec=codec,
            tiers=tiers,
            background=background or local is not None,
            owner=self.attempt.owner,
        )
        self._saver = Saver(
            self._checkpoints,
            every=checkpoint_every,
            background=background or local is not None,
            bounds=checkpoint_bounds,
            clock=timer,
            say=say if self.world.rank == 0 else lambda _: None,
            sync=self._noted.sync,
            done=self._noted.saved,
            stalled=self._noted.stalled,
        )
        self._parts: Mapping[str, Any] | None = None  # until `resume` names them
        self._save_agreed = False
        self._boundaries = Boundaries(self.world, asked=self._stop.poll, leave=self._leave)
        self._closing = Closing(self.attempt, self.world, self._noted)
        self._tracker = tracker
        self._on_terminate = OnTerminate()

    @property
    def ended(self) -> bool:
        """Return whether the attempt's verdict is written, or left to another rank."""
        return self._closing.ended

    @property
    def _books(self) -> Books | None:
        """Return the recorder, on rank 0."""
        return self._noted.books

    # -- for the script ---------------------------------------------------------------------------

    @property
    def device(self) -> Any:
        """Return the GPU of this rank, or the CPU."""
        return device(self.world.local_rank)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record metrics of the step that has just ended.

        For metrics of an evaluation, or of a trainer.
        """
        self._noted.log(max(0, self.step_count - 1), metrics)

    def describe(self, **tags: str) -> None:
        """Record tags: `data_hash=...` becomes the tag `toolkit.data_hash`."""
        self._noted.describe(tags)

    def resume(self, **parts: Any) -> int:
        """Name the parts of a checkpoint, and load the last good one.

        Returns the step to go on with. Raises Stopped when the run makes no progress any more.
        """
        if not parts:
            raise ValueError("run.resume names what a checkpoint holds: model=…, optimizer=…")
        self._parts = parts
        begun = self._timer()
        loaded = self._checkpoints.load(parts)
        seconds = self._timer() - begun if loaded else 0.0
        if loaded:
            self.step_count = int(loaded.facts["step"])
            self._position = int(loaded.facts["position"])
            for problem in loaded.rejected if self.world.rank == 0 else ():
                say(f"checkpoint not used: {problem}")
        mtti = self._books.mtti(site_facts()) if self._books else 0.0
        self._saver.resumed(self.step_count if loaded else None, mtti=mtti)
        stuck = self._books.resumed(self.step_count, seconds) if self._books else ""
        if self._books:
            what = f"resumed from {loaded.name}" if loaded else "from the beginning"
            say(f"attempt {self._books.record.attempt}: step {self.step_count}, {what}")
        if stuck := self.world.broadcast(stuck):
            word = verdict.hold(self.step_count, "no-progress", stuck)
            self._closing.stopped(word, self.attempt.failed)
            raise Stopped(word)
        return self.step_count

    def batches(self, order: SampleOrder, epochs: int) -> Iterator[Batch]:
        """Yield this rank's share of every step still to do.

        End each with `step`.
        """
        if self._parts is None:
            raise RuntimeError(
                "call run.resume(model=…, optimizer=…) first: it loads and saves them"
            )
        if self.world.rank == 0:
            self.dir.agree_order(order, epochs)
        for batch in order.batches(
            step=self.step_count,
            position=self._position,
            epochs=epochs,
            rank=self.world.rank,
            world=self.world.size,
        ):
            yield batch
            if self.step_count != batch.step + 1:
                raise RuntimeError("call run.step(batch) at the end of every step")
            self._boundaries.end_checks()

    def step(self, batch: Batch, **metrics: Any) -> None:
        """End a step: record it, and save when a save is due.

        Leaves by Stopped when a stop was requested.
        """
        stop = self._boundaries.settle().stop
        self.step_count, self._position = batch.step + 1, batch.stop
        self._saver.stepped(self.step_count)
        self._boundaries.start_step(
            batch.mine,
            late=self.world.rank == 0 and self._saver.overdue(),
            then=partial(self._stepped, batch, metrics, self._clock()),
        )
        due = self._saver.due(self.step_count) or self._save_agreed
        if stop or due:
            stop = self._boundaries.settle().stop or stop
        if stop:
            self._leave()
        if due:
            self._save()

    def check(self) -> None:
        """Leave a loop that does not train if a stop was requested.

        Such as evaluation or warm-up. Every rank calls it, at least once in such a loop.
        """
        self._boundaries.check()

    def checked(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items of such a loop, with `check` after each.

        The ranks may have different numbers of items.
        """
        return self._boundaries.checked(items)

    def finish(self, **results: Any) -> None:
        """End the training: save, write result.json, close the recorder.

        Raises CheckpointFailed when that save fails: its work must then be repeated.
        """
        self._boundaries.finish()
        if problem := self._save(last=True):
            raise CheckpointFailed(f"the run's last save failed: {problem}")
        opened = self.world.gather(dataset.used())  # all ranks are here: none can fail any more
        fills = sum(self.world.gather(dataset.fills()))
        if self._books:
            self._books.finished(self.step_count, results, opened, fills)
        self._closing.finished(verdict.done(self.step_count), self.dir.result)

    # -- the context ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        refuse_second(self.attempt, self.world.rank)
        self._on_terminate.begin()
        host = Host.here(self.attempt) if self.world.local_rank == 0 else None
        self._closing.sampler = gpu_sampler.start(self.attempt, host.gpus, say) if host else None
        hosts = [host for host in self.world.gather(host) if host]
        if self.world.rank == 0:
            self.dir.create()
            tracker = self._tracker or tracker_for(self.attempt, self.dir, say)
            self._noted.books = books = Books(
                self.attempt,
                self.dir,
                hosts=hosts,
                world_size=self.world.size,
                tracker=tracker,
                clock=self._clock,
                flops_per_sample=self._flops,
            )
            found = gather.gather(self.attempt, self.dir, seed=self.seed)
            books.describe(flat(self._params), found.tags, found.artifacts)
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if not self.ended and exception_verdict.on_purpose(error):
                self.finish()
        except BaseException as late:
            error = late
            raise
        finally:
            self._on_terminate.shield()
            if error is None:
                self.world.close()
            elif not self.ended:
                self._closing.failed(error, self._saver.reached())
            self._on_terminate.end()

    # -- behind them ------------------------------------------------------------------------------

    def _stepped(self, batch: Batch, metrics: Mapping[str, Any], at: float, told: Agreed) -> None:
        self._save_agreed |= told.save
        self._noted.step(batch, metrics, at, told)

    def _save(self, *, last: bool = False) -> str:
        """Save the state as it is now.

        Returns the problem, or "". A later save makes up for a failed one.
        """
        self._save_agreed = False
        return self._saver.save(*self._state(), last=last)

    def _state(self) -> tuple[Mapping[str, Any] | None, int, Mapping[str, Any]]:
        """Return the parts to save, their step, and the checkpoint's facts."""
        facts = {"position": self._position, "attempt": self.attempt.key, "seed": self.seed}
        return self._parts, self.step_count, facts

    def _leave(self) -> None:
        """Save, and leave by Stopped.

        All ranks are at the same step, and at least one has a stop request.
        """
        asked = [request for request in self.world.gather(self._stop.request) if request]
        request = min(asked, key=lambda each: each.due)
        until = self._timer() + min(_TRIES, request.due - self._clock() - LEAVING)
        problem = self._saver.save_while(
            lambda: self.world.broadcast(self._timer() < until), *self._state()
        )
        if self.world.rank == 0:
            say(f"stopping after {self.step_count} steps: {request.cause} {request.node}")
        word = verdict.resume(self._saver.reached(), request.cause, problem)
        self._closing.stopped(word)
        raise Stopped(word)
