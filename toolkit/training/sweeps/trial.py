"""Give a training script its trial.

All ranks make the same calls. Only rank 0 talks to the storage, and sends the answers to the other
ranks. A storage that does not answer costs the sweep some pruning, and never a trial.
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
from toolkit.training.attempt.job_log import log_line
from toolkit.training.attempt.stop_request import Stopped
from toolkit.training.attempt.verdict import read_verdict
from toolkit.training.distributed.process_group import ProcessGroup, join
from toolkit.training.errors import NoStorage
from toolkit.training.sweeps import array_tasks, study, trial_file, trials

Space = Callable[[Any], Mapping[str, Any]]
"""A function from an Optuna trial to parameters: `lambda t: {"rate": t.suggest_float("rate", 1e-4,
1e-1)}`.
"""

HEARTBEAT_SECONDS = 60.0

STORAGE_TRIES = 10
"""Tries, of 30 s each, when the storage does not answer as a task begins.

They take five minutes, in which a head node restarts. The other ranks wait for ten at most.
"""


class SweepTrial:
    """The context of one trial, around `with Run(...)`; see `toolkit.training.sweeps`."""

    def __init__(
        self,
        space: Space,
        *,
        direction: study.Direction = "minimize",
        world: ProcessGroup | None = None,
        attempt: Attempt | None = None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        pauses: tuple[float, ...] = (1, 2, 4, 8, 16),
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self.world = world or join()
        self.params: Mapping[str, Any] = {}
        self.number = -1
        self._space, self._direction = space, direction
        self._attempt = attempt or current()
        self._environment, self._clock, self._pauses = environment, clock, pauses
        self._study: Any = None  # on rank 0 only, like the next two
        self._trial: Any = None
        self._reported_steps: set[int] = set()
        self._is_pruned = self._has_ended = False
        self._heartbeat_seconds = heartbeat_seconds
        self._stop_heartbeat = threading.Event()

    # -- for the script ---------------------------------------------------------------------------

    def report(self, value: float, step: int) -> bool:
        """Report the trial's value at `step`.

        Returns True when the trial is pruned: leave the loop.
        """
        is_pruned = self._report(float(value), step) if self.world.rank == 0 else False
        self._is_pruned = bool(self.world.broadcast(is_pruned))
        return self._is_pruned

    def complete(self, value: float) -> None:
        """End the trial with this value; a pruned one ends as pruned.

        Raises NoStorage when the storage does not answer. The value is kept. The batch script
        requeues the task, which then reports it. If the value can't be kept either, the task
        repeats the end of its training.
        """
        if self.world.rank == 0:
            self._has_ended = True
            with suppress(OSError):  # the sweep's storage may still take the value
                trial_file.add(self._attempt.run_dir, value=float(value), pruned=self._is_pruned)
            try:
                self._end_trial(value=float(value))
            except NoStorage as error:
                self._fail_attempt(f"NoStorage: {error}")
                raise
        self._has_ended = True

    # -- the context ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Claim this task's trial.

        Leaves the program with exit code 0 if the trial has ended already.
        """
        storage_error: Exception | None = None
        claimed_trial: tuple[int, Mapping[str, Any], bool] | None = None
        if self.world.rank == 0:
            try:
                claimed_trial = self._claim_trial()
            except Exception as error:  # noqa: BLE001  # the other ranks wait for an answer
                storage_error = error
        claimed_trial = self.world.broadcast(claimed_trial)
        if storage_error:
            raise storage_error
        if claimed_trial is None:
            raise SystemExit(1)  # rank 0 says why
        self.number, self.params, is_finished = claimed_trial
        if is_finished:
            raise SystemExit(0)
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._stop_heartbeat.set()
        if self.world.rank != 0 or self._has_ended:
            return
        is_clean_exit = exception_verdict.is_clean_exit(error) and not isinstance(error, Stopped)
        if error is None or is_clean_exit:
            self._fail_trial("the script reported no value")
        elif not _is_requeued_after(error):
            reason = f"{type(error).__name__}: {error}"[:500]
            if not self._attempt.judged_by_script:
                self._fail_trial(reason)
                return
            with suppress(OSError):  # if the batch script ends the job, it reports the failure
                trial_file.add(self._attempt.run_dir, failed=reason)

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

    def _claim_trial(self) -> tuple[int, Mapping[str, Any], bool]:
        self._study = study.open_study(self._storage(), self.sweep, self._direction)
        queued_tasks = array_tasks.queued_tasks()
        if queued_tasks is not None:  # every task that starts fails the trials of lost tasks
            states = trials.states(self._study)
            trials.fail_gone(self._study, trials.gone_trials(states, queued_tasks, self._clock()))
        trial, is_finished = trials.claim_trial(self._study, self.task, self._clock())
        if is_finished:
            log_line(f"trial {trial.number} of {self.sweep} has ended: {trial.state.name.lower()}")
            return trial.number, trial.params, True
        self._trial = trial
        self._reported_steps = set(self._stored_trial().intermediate_values)
        params = dict(self._space(trial))
        noted_facts = trial_file.read(self._attempt.run_dir)
        self._attempt.run_dir.mkdir(parents=True, exist_ok=True)
        names = {"sweep": self.sweep, "task": self.task, "trial": trial.number}
        trial_file.add(self._attempt.run_dir, **names, params=params, failed="")
        if "value" in noted_facts:  # the task was done, and killed before it could report the value
            self._is_pruned = bool(noted_facts.get("pruned"))
            self._end_trial(value=noted_facts["value"])
            return trial.number, params, True
        log_line(f"trial {trial.number} of {self.sweep}: {params}")
        self._start_heartbeat()
        return trial.number, params, False

    def _storage(self) -> Any:
        url = study.address(self._environment)
        is_named = url != study.cluster_address(self._environment)
        if is_named and not trial_file.read(self._attempt.run_dir):
            return self._connect_first(url)
        for _ in range(STORAGE_TRIES - 1):
            try:
                return study.connect(url)
            except NoStorage as error:
                log_line(f"{error}: trying again")
        return study.connect(url)

    def _connect_first(self, url: str) -> Any:
        try:
            return study.connect(url)
        except NoStorage:
            # The message must match no rule that requeues a job, and so must its cause: the
            # name may be a mistake.
            reason = f"no storage answers at {url}: check TOOLKIT_SWEEP_STORAGE"
            raise NoStorage(reason) from None

    def _report(self, value: float, step: int) -> bool:
        try:
            if step not in self._reported_steps:  # an earlier attempt may have reported it
                self._trial.report(value, step)
                self._reported_steps.add(step)
            return bool(self._trial.should_prune())
        except Exception as error:  # noqa: BLE001  # training goes on after any error of the storage
            log_line(f"the value of step {step} is not reported: {type(error).__name__}: {error}")
            return False

    def _end_trial(self, value: float) -> None:
        """Report to the storage how the trial ended.

        Tries for a while, then raises NoStorage.
        """
        for pause in (*self._pauses, None):
            try:
                trials.end_trial(
                    self._study, self._trial, value, pruned=self._is_pruned, may_be_finished=True
                )
            except Exception as error:
                if pause is None:
                    url = study.address(self._environment)
                    raise NoStorage(f"{url} does not answer: {error}") from error
                log_line(f"the sweep's storage does not answer, trying again: {error}")
                time.sleep(pause)
            else:
                return

    def _fail_attempt(self, reason: str) -> None:
        """Have the batch script judge the attempt as failed, for this reason.

        Its training is done, but its value is not reported.
        """
        if not self._attempt.judged_by_script:
            return
        for pause in (*self._pauses, None):
            try:
                ranks_verdict = read_verdict(self._attempt)
                step = ranks_verdict.step if ranks_verdict else 0
                verdict.failed(step, reason).write(self._attempt.verdict_file)
            except OSError:
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                return

    def _fail_trial(self, reason: str) -> None:
        with suppress(Exception):  # nothing may hide the script's own error
            trials.fail_trial(self._study, self.number, reason)

    def _stored_trial(self) -> Any:
        return self._study._storage.get_trial(self._trial._trial_id)  # noqa: SLF001  # Optuna has no other

    def _start_heartbeat(self) -> None:
        trial_id = self._trial._trial_id  # noqa: SLF001  # as above

        def write_heartbeats() -> None:
            while not self._stop_heartbeat.wait(self._heartbeat_seconds):
                with suppress(Exception):  # the next heartbeat may arrive
                    trials.write_heartbeat(self._study, trial_id, self._clock())

        threading.Thread(target=write_heartbeats, name="heartbeat", daemon=True).start()


def _is_requeued_after(error: BaseException) -> bool:
    """Return whether the ranks' verdict is `resume`, or a person pressed Ctrl-C.

    The trial then goes on. The batch script decides about all other errors.
    """
    return exception_verdict.verdict_of(error, 0).verdict == "resume" or isinstance(
        error, KeyboardInterrupt
    )
