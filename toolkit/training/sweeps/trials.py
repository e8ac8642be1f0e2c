"""Bind tasks and trials to each other, in the storage itself.

The binding is made in the same write as the trial, so no kill can leave a trial without a task.
Optuna's own heartbeat fails every trial that is silent for some minutes. An interrupted task that
waits for an instance is silent for as long as that takes. Here silence alone is no end: the task
must also have left Slurm's queue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

TASK, HEARTBEAT, RETRY_OF, REASON = (
    "toolkit.task",
    "toolkit.heartbeat",
    "toolkit.retry_of",
    "toolkit.ended",
)
GRACE_SECONDS = 180.0
"""Three heartbeats: a task that Slurm has just started, or just ended, is not gone yet."""

TASK_GONE = "its task is no longer in Slurm's queue"


@dataclass(frozen=True, slots=True)
class TrialState:
    """A trial as the storage has it."""

    number: int
    state: str  # running, complete, pruned, failed or waiting
    task: str
    value: float | None
    params: dict[str, Any]
    step: int | None  # the last one reported
    heard: float | None  # epoch seconds of the last heartbeat
    why: str = ""


def claim_trial(study: Any, task: str, now: float) -> tuple[Any, bool]:
    """Return the task's trial, and whether it has ended already.

    It is the task's earlier trial, or a new one. A failed trial whose task was requeued is tried
    again as a new one, with the same parameters and the same checkpoint.
    """
    import optuna
    from optuna.trial import TrialState as State

    task_trials = [t for t in study.get_trials(deepcopy=False) if t.user_attrs.get(TASK) == task]
    last_trial = task_trials[-1] if task_trials else None
    if last_trial is not None and last_trial.state in (State.COMPLETE, State.PRUNED):
        return last_trial, True
    if last_trial is not None and last_trial.state == State.RUNNING:
        return optuna.trial.Trial(study, last_trial._trial_id), False  # noqa: SLF001  # there is no other way
    attributes: dict[str, Any] = {TASK: task, HEARTBEAT: now}
    template: dict[str, Any] = {}
    if last_trial is not None:
        attributes[RETRY_OF] = last_trial.number
        template = {"params": last_trial.params, "distributions": last_trial.distributions}
    new_trial = optuna.trial.create_trial(state=State.RUNNING, user_attrs=attributes, **template)
    storage, study_id = study._storage, study._study_id  # noqa: SLF001  # ask() can't bind
    return optuna.trial.Trial(study, storage.create_new_trial(study_id, new_trial)), False


def write_heartbeat(study: Any, trial_id: int, now: float) -> None:
    """Write a heartbeat: a task works on the trial."""
    study._storage.set_trial_user_attr(trial_id, HEARTBEAT, now)  # noqa: SLF001  # as above


def gone_trials(
    states: Iterable[TrialState], queued_tasks: frozenset[str], now: float
) -> list[TrialState]:
    """Return the running trials that no task works on, or will.

    They are silent, and their task is not in the queue.
    """
    return [
        trial
        for trial in states
        if trial.state == "running"
        and trial.task not in queued_tasks
        and (trial.heard is None or now - trial.heard > GRACE_SECONDS)
    ]


def fail_gone(study: Any, gone_states: Sequence[TrialState]) -> list[TrialState]:
    """Fail trials that are gone.

    Returns those that it failed: another task may have been first.
    """
    from optuna.exceptions import UpdateFinishedTrialError

    failed_trials = []
    for trial in gone_states:
        try:
            fail_trial(study, trial.number, TASK_GONE)
        except (UpdateFinishedTrialError, ValueError, RuntimeError):
            continue
        failed_trials.append(trial)
    return failed_trials


def end_trial(
    study: Any, trial: Any, value: float, *, pruned: bool, may_be_finished: bool = False
) -> None:
    """End a trial with its value, or as pruned.

    `trial` is the trial or its number. Raises one of Optuna's errors when it is over already. With
    `may_be_finished`, an earlier call may have ended it, and no error is raised.
    """
    from optuna.trial import TrialState as State

    if pruned:
        study.tell(trial, state=State.PRUNED, skip_if_finished=may_be_finished)
    else:
        study.tell(trial, value, skip_if_finished=may_be_finished)


def fail_trial(study: Any, number: int, reason: str) -> None:
    """End a trial as failed.

    Raises one of Optuna's errors when it is over already.
    """
    from optuna.trial import TrialState as State

    storage, study_id = study._storage, study._study_id  # noqa: SLF001  # as above
    trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
    storage.set_trial_user_attr(trial_id, REASON, reason)
    study.tell(number, state=State.FAIL)


def states(study: Any) -> list[TrialState]:
    """Return all trials, in order."""
    return [_state(trial) for trial in study.get_trials(deepcopy=False)]


def _state(trial: Any) -> TrialState:
    last_heartbeat = trial.user_attrs.get(HEARTBEAT)
    if last_heartbeat is None and trial.datetime_start is not None:
        last_heartbeat = trial.datetime_start.timestamp()
    names = {"FAIL": "failed"}
    return TrialState(
        number=trial.number,
        state=names.get(trial.state.name, trial.state.name.lower()),
        task=str(trial.user_attrs.get(TASK, "")),
        value=trial.values[0] if trial.values else None,
        params=dict(trial.params),
        step=trial.last_step,
        heard=last_heartbeat,
        why=str(trial.user_attrs.get(REASON, "")),
    )
