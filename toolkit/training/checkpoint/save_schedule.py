"""Decide when a run saves, save, and report the outcome."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from toolkit.training.checkpoint import save_interval
from toolkit.training.checkpoint.checkpointer import Checkpointer, SavedCheckpoint
from toolkit.training.checkpoint.torch_codec import Parts
from toolkit.training.errors import CheckpointFailed
from toolkit.training.run_folder import stop_forecast
from toolkit.training.run_folder.stop_forecast import StopForecast

Every = int | Literal["auto"]

_LONGEST_PAUSE = 8.0  # seconds between tries of a save that can't be later


class Saver:
    """A schedule of saves: every so many steps, or as often as pays off.

    A save that fails costs a warning. Three functions are called on the way.

    `sync` is called first, on all ranks. It puts on disk the records that no checkpoint may be
    ahead of. If it can't, it raises CheckpointFailed on all ranks.

    `on_saved` gets each checkpoint once it is committed. `on_stall` gets the step and the seconds
    that training stood still, each time training goes on.
    """

    def __init__(
        self,
        checkpoints: Checkpointer,
        *,
        every: Every,
        background: bool,
        bounds: tuple[float, float],
        clock: Callable[[], float],
        log_line: Callable[[str], None],
        sync: Callable[[], object],
        on_saved: Callable[[SavedCheckpoint, StopForecast | None], None],
        on_stall: Callable[[int, float], None] = lambda _step, _seconds: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if every != "auto" and every < 1:
            raise ValueError(f"checkpoint_every must be a number of steps or 'auto', not {every}")
        self._checkpoints, self._every, self._background = checkpoints, every, background
        self._floor, self._ceiling = bounds
        self._clock, self._log_line, self._sync, self._on_saved = clock, log_line, sync, on_saved
        self._on_stall, self._sleep = on_stall, sleep
        self._mtti = float("inf")
        self._wait_seconds = self._floor  # to the next save; the floor until a save is measured
        self._last_start = clock()
        self._first_step: tuple[int, float] | None = None  # the attempt's first step, and its end
        self._stall_seconds = 0.0  # seconds that training stood still for saves since then
        self._saving_step: int | None = None
        self._saving_seconds = 0.0  # seconds that the last save was seen running
        self._has_forecast = False
        self.step: int | None = None  # the step of the last checkpoint, saved or loaded

    def start_at(self, step: int | None, *, mtti: float) -> None:
        """Begin at a checkpoint of `step`, or at none.

        `mtti` is the seconds between interruptions.
        """
        self.step, self._mtti = step, mtti
        self._last_start = self._clock()

    def note_step(self, step: int) -> None:
        """Note that `step` steps are done.

        Called at the end of every step, before a save of it.
        """
        if self._first_step is None:
            self._first_step = step, self._clock()

    def resume_step(self) -> int:
        """Return the step that the next attempt begins with.

        Before `start_at` it is the last checkpoint's in the folder.
        """
        if self.step is None:
            with suppress(OSError):  # the number only informs people
                return self._checkpoints.last_step() or 0
        return self.step or 0

    def is_due(self, step: int) -> bool:
        """Return whether a save was ordered for this step.

        The answer is the same on all ranks.
        """
        return self._every != "auto" and step % self._every == 0

    def is_overdue(self) -> bool:
        """Return whether it is time to save by this rank's clock.

        The ranks must still agree on it. False while a save is running, and for as long
        again after it: training does not wait for it.
        """
        if self._every != "auto":
            return False
        now = self._clock()
        if self._checkpoints.is_saving():
            self._saving_seconds = now - self._last_start
            return False
        return now - self._last_start >= max(self._wait_seconds, 2 * self._saving_seconds)

    def save(
        self,
        parts: Parts | None,
        step: int,
        facts: Mapping[str, Any],
        *,
        last: bool,
        urgent: bool = False,
    ) -> str:
        """Save, in the background unless it is the attempt's `last` save.

        Returns the problem, or "". For the `last` save, "" means that a checkpoint of `step` is
        committed. Before there are `parts` it only means that the earlier checkpoints stay the
        newest.

        Raises Superseded when the run is another attempt's, also when there is nothing to save.
        """
        self._last_start, self._saving_seconds = self._clock(), 0.0
        problem = self._save(parts, step, facts, last=last, urgent=urgent)
        stall = self._clock() - self._last_start
        self._stall_seconds += stall
        self._on_stall(step, stall)
        return problem

    def _save(
        self, parts: Parts | None, step: int, facts: Mapping[str, Any], *, last: bool, urgent: bool
    ) -> str:
        self.wait_for_save(step, urgent=urgent)
        try:
            self._sync()
            self._checkpoints.check_fence()
            if parts is None or self.step == step:  # this step was saved or loaded last
                return ""
            if self._background and not last:
                self._checkpoints.start_save(parts, step=step, facts=facts)
                self._saving_step = step
            else:
                self._note_saved(
                    self._checkpoints.save(parts, step=step, facts=facts, urgent=urgent), step
                )
        except CheckpointFailed as error:
            self._log_line(f"NOT SAVED at step {step}: {error}")
            return str(error)
        return ""

    def save_with_retries(
        self, has_time: Callable[[], bool], parts: Parts | None, step: int, facts: Mapping[str, Any]
    ) -> str:
        """Make the `last`, `urgent` save, and repeat it while it fails.

        No later save can make up for it. `has_time` returns, the same on all ranks,
        whether there is time for another try.
        """
        pause = 1.0
        while problem := self.save(parts, step, facts, last=True, urgent=True):
            if not has_time():
                break
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return problem

    def wait_for_save(self, step: int, *, urgent: bool = False) -> None:
        """Wait for the save in the background. Its failure costs a warning."""
        saving_step, self._saving_step = self._saving_step, None
        if saving_step is None:
            return
        start = self._clock()
        try:
            saved = self._checkpoints.wait_for_save(urgent=urgent)
        except CheckpointFailed as error:
            self._log_line(f"NOT SAVED at step {saving_step}: {error}")
            return
        if saved:
            stall = saved.stall_seconds + max(0.0, self._clock() - start)
            self._note_saved(replace(saved, stall_seconds=stall), step)

    def _note_saved(self, saved: SavedCheckpoint, step: int) -> None:
        self.step = saved.step
        for problem in saved.problems:
            self._log_line(problem)
        self._on_saved(saved, self._forecast(saved, step))
        # The next save must not begin before a save as long as this one would be done.
        floor = max(self._floor, 2 * saved.whole_seconds)
        work = save_interval.interval(
            saved.stall_seconds, self._mtti, floor=floor, ceiling=max(floor, self._ceiling)
        )
        self._wait_seconds = saved.stall_seconds + work

    def _forecast(self, saved: SavedCheckpoint, step: int) -> StopForecast | None:
        """Return the forecast of a stop, once; write it to the log.

        None before a second step: the first step compiles, and it waits for the other ranks'
        compilation. The forecast also serves the next run's submission.
        """
        first, end = self._first_step or (step, 0.0)
        if self._has_forecast or step <= first:
            return None
        self._has_forecast = True
        train_seconds = max(0.0, self._last_start - end - self._stall_seconds)
        forecast = stop_forecast.forecast(
            step_seconds=train_seconds / (step - first),
            in_flight_seconds=saved.stop_seconds if self._background else saved.whole_seconds,
            save_seconds=saved.stop_seconds,
            saved_bytes=saved.bytes,
        )
        warning = forecast.warning()
        notice = f"{stop_forecast.NOTICE_SECONDS:.0f}"
        fit_message = f"a stop would take {forecast.seconds:.0f} s of a spot notice's {notice} s"
        self._log_line(f"WARNING: {warning}" if warning else fit_message)
        return forecast
