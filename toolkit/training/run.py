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
from toolkit.training.attempt.job_log import log_line
from toolkit.training.attempt.sigterm import SigtermHandler
from toolkit.training.attempt.stop_request import StopFiles, Stopped
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.collective import rank0_only
from toolkit.training.checkpoint.local_disk import ViaLocalDisk
from toolkit.training.checkpoint.save_schedule import Every, Saver
from toolkit.training.checkpoint.tier import Tier
from toolkit.training.checkpoint.torch_codec import Codec, TorchCodec
from toolkit.training.distributed.process_group import ProcessGroup, device, join
from toolkit.training.distributed.step_sync import Agreement, StepSync
from toolkit.training.errors import CheckpointFailed
from toolkit.training.recording import gpu_sampler
from toolkit.training.recording.close_run import AttemptCloser, refuse_second
from toolkit.training.recording.recorder import (
    Host,
    NullRecorder,
    Recorder,
    RunRecorder,
    TrackerLike,
)
from toolkit.training.reproduce import gather
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.stop_forecast import LEAVING_SECONDS
from toolkit.training.sample_order import Batch, SampleOrder
from toolkit.training.tracking.mlflow import as_text, tracker_for

T = TypeVar("T")

_SAVE_RETRY_SECONDS = (
    60.0  # seconds in which a stop's failed save is repeated; a notice may leave fewer
)


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
        world: ProcessGroup | None = None,
        codec: Codec | None = None,
        tracker: TrackerLike | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.attempt = attempt or current()
        self.world = world or join()
        self.dir = RunFolder(self.attempt.run_dir, self.attempt.fence.write_fenced)
        self.step_count = 0  # steps done; the number of the next one
        self._position = 0  # samples taken since the run began, over all ranks
        self._params, self.seed, self._flops = params, seed, flops_per_sample
        self._clock, self._timer = clock, timer
        self._print_every = print_every
        self._recorder: Recorder = NullRecorder()
        self._stop_files = StopFiles(self.attempt.stop_files, self.attempt.started_at, clock=timer)
        if local is not None:
            root = local / f"checkpoints-{self.attempt.job_id}"
            codec, background = ViaLocalDisk(codec or TorchCodec(), root, self.world), True
        self._checkpoints = Checkpointer(
            self.dir.checkpoints,
            self.world,
            keep=keep,
            codec=codec,
            tiers=tiers,
            background=background,
            fence=self.attempt.fence,
        )
        self._saver = self._new_saver(checkpoint_every, checkpoint_bounds, background=background)
        self._parts: Mapping[str, Any] | None = None  # until `resume` names them
        self._save_agreed = False
        self._boundaries = StepSync(
            self.world, stop_requested=self._stop_files.poll, leave=self._save_and_stop
        )
        self._closer = AttemptCloser(self.attempt, self.world)
        self._tracker = tracker
        self._on_terminate = SigtermHandler()

    def _new_saver(self, every: Every, bounds: tuple[float, float], *, background: bool) -> Saver:
        return Saver(
            self._checkpoints,
            every=every,
            background=background,
            bounds=bounds,
            clock=self._timer,
            log_line=log_line if self.world.rank == 0 else lambda _: None,
            sync=lambda: rank0_only(self.world, self._recorder.sync),
            on_saved=lambda saved, forecast: self._recorder.record_save(saved, forecast),  # noqa: PLW0108  # the recorder opens later
            on_stall=lambda step, seconds: self._recorder.record_stall(step, seconds),  # noqa: PLW0108  # as above
        )

    @property
    def ended(self) -> bool:
        """Return whether the attempt's verdict is written, or left to another rank."""
        return self._closer.ended

    # -- for the script ---------------------------------------------------------------------------

    @property
    def device(self) -> Any:
        """Return the GPU of this rank, or the CPU."""
        return device(self.world.local_rank)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record metrics of the step that has just ended.

        For metrics of an evaluation, or of a trainer.
        """
        self._recorder.log(max(0, self.step_count - 1), metrics)

    def describe(self, **tags: str) -> None:
        """Record tags: `data_hash=...` becomes the tag `toolkit.data_hash`."""
        self._recorder.describe(tags)

    def resume(self, **parts: Any) -> int:
        """Name the parts of a checkpoint, and load the last good one.

        Returns the step to go on with. Raises Stopped when the run makes no progress any more.
        """
        if not parts:
            raise ValueError("run.resume names what a checkpoint holds: model=…, optimizer=…")
        self._parts = parts
        load_start = self._timer()
        loaded = self._checkpoints.load(parts)
        seconds = self._timer() - load_start if loaded else 0.0
        if loaded:
            self.step_count = int(loaded.facts["step"])
            self._position = int(loaded.facts["position"])
            if self.world.rank == 0 and (order := loaded.facts.get("order")):
                self.dir.adopt_order(order)
            for problem in loaded.rejected if self.world.rank == 0 else ():
                log_line(f"checkpoint not loaded: {problem}")
        mtti = self._recorder.mtti()
        self._saver.start_at(self.step_count if loaded else None, mtti=mtti)
        no_progress = self._recorder.record_resume(
            self.step_count, checkpoint=loaded.name if loaded else "", seconds=seconds
        )
        if no_progress := self.world.broadcast(no_progress):
            hold_verdict = verdict.hold(self.step_count, "no-progress", no_progress)
            self._closer.close_stopped(hold_verdict, self.attempt.failure_status)
            raise Stopped(hold_verdict)
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
            world_size=self.world.size,
        ):
            yield batch
            if self.step_count != batch.step + 1:
                raise RuntimeError("call run.step(batch) at the end of every step")
            self._boundaries.end_checks()

    def step(self, batch: Batch, **metrics: Any) -> None:
        """End a step: record it, and save when a save is due.

        Leaves by Stopped when a stop was requested.
        """
        stop = self._boundaries.await_agreement().stop
        self.step_count, self._position = batch.step + 1, batch.stop
        self._saver.note_step(self.step_count)
        self._boundaries.start_step(
            batch.mine,
            save_due=self.world.rank == 0 and self._saver.is_overdue(),
            on_agreement=partial(self._record_step, batch, metrics, self._clock()),
        )
        due = self._saver.is_due(self.step_count) or self._save_agreed
        if stop or due:
            stop = self._boundaries.await_agreement().stop or stop
        if stop:
            self._save_and_stop()
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
            raise CheckpointFailed(f"the last save of the run failed: {problem}")
        # All ranks are here: none can fail any more.
        datasets_by_process = self.world.gather(dataset.used_versions())
        fetched = sum(self.world.gather(dataset.fill_count()))
        self._recorder.record_result(self.step_count, results, datasets_by_process, fetched)
        self._closer.close_finished(verdict.done(self.step_count), self.dir.result)

    # -- the context ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        refuse_second(self.attempt, self.world.rank)
        self._on_terminate.install()
        host = Host.current(self.attempt) if self.world.local_rank == 0 else None
        if host:
            self._closer.sampler = gpu_sampler.start(self.attempt, host.gpus, log_line)
        hosts = [host for host in self.world.gather(host) if host]
        if self.world.rank == 0:
            self._recorder = self._closer.recorder = self._open_recorder(hosts)
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if not self.ended and exception_verdict.is_clean_exit(error):
                self.finish()
        except BaseException as finish_error:
            error = finish_error
            raise
        finally:
            self._on_terminate.ignore_sigterm()
            if error is None:
                self.world.close()
            elif not self.ended:
                self._closer.close_failed(error, self._saver.resume_step())
            self._on_terminate.restore()

    # -- behind them ------------------------------------------------------------------------------

    def _open_recorder(self, hosts: Sequence[Host]) -> RunRecorder:
        self.dir.create()
        recorder = RunRecorder(
            self.attempt,
            self.dir,
            hosts=hosts,
            world_size=self.world.size,
            tracker=self._tracker or tracker_for(self.attempt, self.dir, log_line),
            clock=self._clock,
            print_every=self._print_every,
            flops_per_sample=self._flops,
        )
        run_facts = gather.gather(self.attempt, self.dir, seed=self.seed)
        recorder.record_facts(as_text(self._params), run_facts.tags, run_facts.artifacts)
        return recorder

    def _record_step(
        self, batch: Batch, metrics: Mapping[str, Any], at: float, agreed: Agreement
    ) -> None:
        self._save_agreed |= agreed.save
        self._recorder.record_step(batch, metrics, at, agreed)

    def _save(self, *, last: bool = False) -> str:
        """Save the state as it is now.

        Returns the problem, or "". A later save makes up for a failed one.
        """
        self._save_agreed = False
        return self._saver.save(*self._state(), last=last)

    def _state(self) -> tuple[Mapping[str, Any] | None, int, Mapping[str, Any]]:
        """Return the parts to save, their step, and the checkpoint's facts."""
        facts = {"position": self._position, "attempt": self.attempt.key, "seed": self.seed}
        if self.dir.order:  # only rank 0 agrees on it, and only rank 0 writes the facts
            facts["order"] = self.dir.order
        return self._parts, self.step_count, facts

    def _save_and_stop(self) -> None:
        """Save, and leave by Stopped.

        All ranks are at the same step, and at least one has a stop request.
        """
        requests = [request for request in self.world.gather(self._stop_files.request) if request]
        request = min(requests, key=lambda stop_request: stop_request.due)
        retry_until = self._timer() + min(
            _SAVE_RETRY_SECONDS, request.due - self._clock() - LEAVING_SECONDS
        )
        problem = self._saver.save_with_retries(
            lambda: self.world.broadcast(self._timer() < retry_until), *self._state()
        )
        if self.world.rank == 0:
            place = f" on node {request.node}" if request.node else ""
            log_line(f"stopped after {self.step_count} steps: {request.cause}{place}")
        resume_verdict = verdict.resume(self._saver.resume_step(), request.cause, problem)
        self._closer.close_stopped(resume_verdict)
        raise Stopped(resume_verdict)
