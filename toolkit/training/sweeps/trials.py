"""Bind tasks and trials to each other, in the storage itself.

The binding is made in the same write as the trial, so no kill can leave a trial without a task.
Optuna's own heartbeat fails every trial that is silent for some minutes. An evicted task that waits
for an instance is silent for as long as that takes. Here silence alone is no end: Slurm must also
say that the task is gone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

TASK, HEARTBEAT, RETRY_OF, WHY = (
    "toolkit.task",
    "toolkit.heartbeat",
    "toolkit.retry_of",
    "toolkit.ended",
)
GRACE_SECONDS = 180.0
"""Three heartbeats: a task that Slurm has just started, or just ended, is not gone yet."""

GONE = "its task is gone"


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


def claim(study: Any, task: str, now: float) -> tuple[Any, bool]:
    """Return the task's trial, and whether it is over already.

    It is the task's earlier trial, or a new one. A failed trial whose task came back is tried again
    as a new one, with the same parameters and the same checkpoint.
    """
    import optuna
    from optuna.trial import TrialState as State

    own = [t for t in study.get_trials(deepcopy=False) if t.user_attrs.get(TASK) == task]
    last = own[-1] if own else None
    if last is not None and last.state in (State.COMPLETE, State.PRUNED):
        return last, True
    if last is not None and last.state == State.RUNNING:
        return optuna.trial.Trial(study, last._trial_id), False  # noqa: SLF001  # there is no other way
    attributes: dict[str, Any] = {TASK: task, HEARTBEAT: now}
    template: dict[str, Any] = {}
    if last is not None:
        attributes[RETRY_OF] = last.number
        template = {"params": last.params, "distributions": last.distributions}
    made = optuna.trial.create_trial(state=State.RUNNING, user_attrs=attributes, **template)
    storage, number = study._storage, study._study_id  # noqa: SLF001  # ask() can't bind
    return optuna.trial.Trial(study, storage.create_new_trial(number, made)), False


def beat(study: Any, trial_id: int, now: float) -> None:
    """Write a heartbeat: a task works on the trial."""
    study._storage.set_trial_user_attr(trial_id, HEARTBEAT, now)  # noqa: SLF001  # as above


def gone(states: Iterable[TrialState], live: frozenset[str], now: float) -> list[TrialState]:
    """Return the running trials that no task works on, or will.

    They are silent, and their task is not in the queue.
    """
    return [
        one
        for one in states
        if one.state == "running"
        and one.task not in live
        and (one.heard is None or now - one.heard > GRACE_SECONDS)
    ]


def give_up(study: Any, lost: Sequence[TrialState]) -> list[TrialState]:
    """Fail trials that are gone.

    Returns those that it failed: another task may have been first.
    """
    from optuna.exceptions import UpdateFinishedTrialError

    done = []
    for one in lost:
        try:
            fail(study, one.number, GONE)
        except (UpdateFinishedTrialError, ValueError, RuntimeError):
            continue
        done.append(one)
    return done


def tell(study: Any, trial: Any, value: float, *, pruned: bool, again: bool = False) -> None:
    """End a trial with its value, or as pruned.

    `trial` is the trial or its number. Raises one of Optuna's errors when it is over already. With
    `again`, an earlier call may have ended it, and no error is raised.
    """
    from optuna.trial import TrialState as State

    if pruned:
        study.tell(trial, state=State.PRUNED, skip_if_finished=again)
    else:
        study.tell(trial, value, skip_if_finished=again)


def fail(study: Any, number: int, why: str) -> None:
    """End a trial as failed.

    Raises one of Optuna's errors when it is over already.
    """
    from optuna.trial import TrialState as State

    storage, identity = study._storage, study._study_id  # noqa: SLF001  # as above
    trial_id = storage.get_trial_id_from_study_id_trial_number(identity, number)
    storage.set_trial_user_attr(trial_id, WHY, why)
    study.tell(number, state=State.FAIL)


def states(study: Any) -> list[TrialState]:
    """Return all trials, in order."""
    return [_state(trial) for trial in study.get_trials(deepcopy=False)]


def _state(trial: Any) -> TrialState:
    heard = trial.user_attrs.get(HEARTBEAT)
    if heard is None and trial.datetime_start is not None:
        heard = trial.datetime_start.timestamp()
    names = {"FAIL": "failed"}
    return TrialState(
        number=trial.number,
        state=names.get(trial.state.name, trial.state.name.lower()),
        task=str(trial.user_attrs.get(TASK, "")),
        value=trial.values[0] if trial.values else None,
        params=dict(trial.params),
        step=trial.last_step,
        heard=heard,
        why=str(trial.user_attrs.get(WHY, "")),
    )
