"""Which trial is whose: tasks and trials, bound to each other in the storage itself.

The binding is made in the same write as the trial, so no kill can leave a trial that is nobody's.
Optuna's own heartbeat fails every trial that is silent for some minutes, and an evicted task that
waits for a machine is silent for as long as that takes. Here silence alone is no end: Slurm must
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
    """One trial as the storage has it. `state` is running, complete, pruned, failed or waiting."""

    number: int
    state: str
    task: str
    value: float | None
    params: dict[str, Any]
    step: int | None  # the last one reported
    heard: float | None
    why: str = ""


def claim(study: Any, task: str, now: float) -> tuple[Any, bool]:
    """The task's trial, and whether it is over already.

    It is the one the task had; a new one when it had none. A trial that failed, though its task
    came back, is tried again as a new one: the same parameters, the same checkpoint.
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
    """Say that the trial is being worked on."""
    study._storage.set_trial_user_attr(trial_id, HEARTBEAT, now)  # noqa: SLF001  # as above


def gone(states: Iterable[TrialState], live: frozenset[str], now: float) -> list[TrialState]:
    """Running trials that nobody works on, nor will: silent, and their task is not in the queue."""
    return [
        one
        for one in states
        if one.state == "running"
        and one.task not in live
        and (one.heard is None or now - one.heard > GRACE_SECONDS)
    ]


def give_up(study: Any, lost: Sequence[TrialState]) -> list[TrialState]:
    """Fail trials that are gone; those that it failed (another task may have been first)."""
    from optuna.exceptions import UpdateFinishedTrialError

    done = []
    for one in lost:
        try:
            fail(study, one.number, GONE)
        except (UpdateFinishedTrialError, ValueError, RuntimeError):
            continue
        done.append(one)
    return done


def fail(study: Any, number: int, why: str) -> None:
    """End a trial as failed. Raises one of Optuna's errors where it is over already."""
    from optuna.trial import TrialState as State

    storage, identity = study._storage, study._study_id  # noqa: SLF001  # as above
    trial_id = storage.get_trial_id_from_study_id_trial_number(identity, number)
    storage.set_trial_user_attr(trial_id, WHY, why)
    study.tell(number, state=State.FAIL)


def states(study: Any) -> list[TrialState]:
    """All trials, in order."""
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
