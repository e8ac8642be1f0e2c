"""Give a training script its trial.

All ranks make the same calls. Only rank 0 talks to the storage, and sends the answers to the other
ranks. A storage that is away costs the sweep some pruning, and never a trial.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from toolkit.training.attempt import exception_verdict, verdict
from toolkit.training.attempt.attempt import Attempt, current
from toolkit.training.attempt.job_log import say
from toolkit.training.attempt.stop_request import Stopped
from toolkit.training.attempt.verdict import read_verdict
from toolkit.training.distributed.process_group import World, join
from toolkit.training.sweeps import array_tasks, study, trial_file, trials

Space = Callable[[Any], Mapping[str, Any]]
"""A function from an Optuna trial to parameters: `lambda t: {"rate": t.suggest_float("rate", 1e-4,
1e-1)}`.
"""

BEAT_SECONDS = 60.0

TRIES = 10
"""Tries, of 30 s each, when the storage does not answer as a task begins.

A head restarts in minutes, and no rank trains meanwhile. The other ranks wait for 10 minutes.
"""


class SweepTrial:
    """The context of one trial, around `with Run(...)`; see `toolkit.training.sweeps`."""

    def __init__(
        self,
        space: Space,
        *,
        direction: study.Direction = "minimize",
        world: World | None = None,
        attempt: Attempt | None = None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        pauses: tuple[float, ...] = (1, 2, 4, 8, 16),
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self.world = world or join()
        self.params: Mapping[str, Any] = {}
        self.number = -1
        self._space, self._direction = space, direction
        self._attempt = attempt or current()
        self._environment, self._clock, self._pauses = environment, clock, pauses
        self._study: Any = None  # on rank 0 only, like the next two
        self._trial: Any = None
        self._reported: set[int] = set()
        self._pruned = self._told = False
        self._beat_seconds = beat_seconds
        self._quiet = threading.Event()

    # -- for the script ---------------------------------------------------------------------------

    def report(self, value: float, step: int) -> bool:
        """Report the trial's value at `step`.

        Returns True when the trial is pruned: leave the loop.
        """
        verdict = self._report(float(value), step) if self.world.rank == 0 else False
        self._pruned = bool(self.world.broadcast(verdict))
        return self._pruned

    def complete(self, value: float) -> None:
        """End the trial with this value; a pruned one ends as pruned.

        Raises NoStorage when the storage does not answer. The value is kept, and reported when the
        task is started again, as a batch script does. If it can't be kept either, the task comes
        back to the end of its training.
        """
        if self.world.rank == 0:
            self._told = True
            with suppress(OSError):  # the sweep's storage may still take the value
                trial_file.add(self._attempt.run_dir, value=float(value), pruned=self._pruned)
            try:
                self._tell(value=float(value))
            except study.NoStorage as error:
                self._come_back(f"NoStorage: {error}")
                raise
        self._told = True

    # -- the context ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Take up this task's trial.

        Leaves the program with exit code 0 if the trial is over already.
        """
        problem: Exception | None = None
        heard: tuple[int, Mapping[str, Any], bool] | None = None
        if self.world.rank == 0:
            try:
                heard = self._take_up()
            except Exception as error:  # noqa: BLE001  # the other ranks wait for an answer
                problem = error
        heard = self.world.broadcast(heard)
        if problem:
            raise problem
        if heard is None:
            raise SystemExit(1)  # rank 0 says why
        self.number, self.params, over = heard
        if over:
            raise SystemExit(0)
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._quiet.set()
        if self.world.rank != 0 or self._told:
            return
        left = exception_verdict.on_purpose(error) and not isinstance(error, Stopped)
        if error is None or left:
            self._fail("the script gave no value")
        elif not _comes_back(error):
            why = f"{type(error).__name__}: {error}"[:500]
            if not self._attempt.judged:
                self._fail(why)
                return
            with suppress(OSError):  # if the batch script ends the job, it reports the failure
                trial_file.add(self._attempt.run_dir, failed=why)

    # -- rank 0 -----------------------------------------------------------------------------------

    @property
    def task(self) -> str:
        """Return the name that the trial is bound to.

        It is `<array job>_<task>`, or the run folder's name.
        """
        job = self._environment.get("SLURM_ARRAY_JOB_ID")
        number = self._environment.get("SLURM_ARRAY_TASK_ID")
        return f"{job}_{number}" if job and number else self._attempt.run_dir.name

    @property
    def sweep(self) -> str:
        """Return the study's name: TOOLKIT_SWEEP, or after the job array."""
        array = self._environment.get("SLURM_ARRAY_JOB_ID") or self._attempt.job_id
        return self._environment.get("TOOLKIT_SWEEP") or f"sweep-{array}"

    def _take_up(self) -> tuple[int, Mapping[str, Any], bool]:
        self._study = study.study(self._storage(), self.sweep, self._direction)
        live = array_tasks.tasks()
        if live is not None:  # every task that starts gives up the trials of lost tasks
            trials.give_up(
                self._study, trials.gone(trials.states(self._study), live, self._clock())
            )
        trial, over = trials.claim(self._study, self.task, self._clock())
        if over:
            say(f"trial {trial.number} of {self.sweep} is over: {trial.state.name.lower()}")
            return trial.number, trial.params, True
        self._trial = trial
        self._reported = set(self._frozen().intermediate_values)
        params = dict(self._space(trial))
        known = trial_file.read(self._attempt.run_dir)
        self._attempt.run_dir.mkdir(parents=True, exist_ok=True)
        mine = {"sweep": self.sweep, "task": self.task, "trial": trial.number, "params": params}
        trial_file.add(self._attempt.run_dir, **mine, failed="")
        if "value" in known:  # the task was done, and killed before it could report the value
            self._pruned = bool(known.get("pruned"))
            self._tell(value=known["value"])
            return trial.number, params, True
        say(f"trial {trial.number} of {self.sweep}: {params}")
        self._start_beating()
        return trial.number, params, False

    def _storage(self) -> Any:
        url = study.address(self._environment)
        if url != study.clusters(self._environment) and not trial_file.read(self._attempt.run_dir):
            return self._never_met(url)
        for _ in range(TRIES - 1):
            try:
                return study.connect(url)
            except study.NoStorage as error:
                say(f"{error}: trying again")
        return study.connect(url)

    def _never_met(self, url: str) -> Any:
        try:
            return study.connect(url)
        except study.NoStorage:
            # The message must match no rule that brings a job back, and so must its cause: the
            # name may be a mistake.
            why = f"nobody answers at {url}: is TOOLKIT_SWEEP_STORAGE right?"
            raise study.NoStorage(why) from None

    def _report(self, value: float, step: int) -> bool:
        try:
            if step not in self._reported:  # an earlier attempt may have reported it
                self._trial.report(value, step)
                self._reported.add(step)
            return bool(self._trial.should_prune())
        except Exception as error:  # noqa: BLE001  # training goes on after any error of the storage
            say(f"not reported at step {step}: {type(error).__name__}: {error}")
            return False

    def _tell(self, value: float) -> None:
        """Report to the storage how the trial ended.

        Tries for a while, then raises NoStorage.
        """
        for pause in (*self._pauses, None):
            try:
                trials.tell(self._study, self._trial, value, pruned=self._pruned, again=True)
            except Exception as error:
                if pause is None:
                    url = study.address(self._environment)
                    raise study.NoStorage(f"{url} does not answer: {error}") from error
                say(f"the sweep's storage does not answer, trying again: {error}")
                time.sleep(pause)
            else:
                return

    def _come_back(self, why: str) -> None:
        """Have the batch script judge the attempt as failed, for this reason.

        Its training is done, but its value is not reported.
        """
        if not self._attempt.judged:
            return
        for pause in (*self._pauses, None):
            try:
                word = read_verdict(self._attempt)
                verdict.failed(word.step if word else 0, why).write(self._attempt.verdict_file)
            except OSError:
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                return

    def _fail(self, why: str) -> None:
        with suppress(Exception):  # nothing may hide the script's own error
            trials.fail(self._study, self.number, why)

    def _frozen(self) -> Any:
        return self._study._storage.get_trial(self._trial._trial_id)  # noqa: SLF001  # Optuna has no other

    def _start_beating(self) -> None:
        identity = self._trial._trial_id  # noqa: SLF001  # as above

        def work() -> None:
            while not self._quiet.wait(self._beat_seconds):
                with suppress(Exception):  # the next heartbeat may arrive
                    trials.beat(self._study, identity, self._clock())

        threading.Thread(target=work, name="heartbeat", daemon=True).start()


def _comes_back(error: BaseException) -> bool:
    """Return whether Slurm will start this task again.

    Then its trial goes on.
    """
    return exception_verdict.verdict_of(error, 0).verdict == "resume" or isinstance(
        error, KeyboardInterrupt
    )
