"""A trial belongs to one task and ends exactly once."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace

import optuna
import pytest

from toolkit.training.attempt.sigterm import Terminated
from toolkit.training.attempt.verdict import hold, resume
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import NoStorage
from toolkit.training.run import Stopped
from toolkit.training.sweeps import array_tasks, status, study as study_storage, trial_file, trials
from toolkit.training.sweeps.trial import SweepTrial

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
NOW = 10_000.0
EVERYTHING = frozenset({"5_0", "5_1", "5_2"})


def space(trial):
    return {"rate": trial.suggest_float("rate", 0.0, 1.0)}


@dataclass
class Sweep:
    """The tasks of array job 5, with one storage in memory."""

    root: object
    attempt_of: object
    storage: object
    now: float = NOW
    away: bool = False
    judged: bool = False

    def attempt(self, number):
        return replace(self.attempt_of(judged=self.judged), run_dir=self.root / f"task-{number}")

    def task(self, number, *, world=None):
        return SweepTrial(
            space,
            direction="maximize",
            world=world or Solo(),
            attempt=self.attempt(number),
            environment={
                "TOOLKIT_SWEEP": "digits",
                "TOOLKIT_SWEEP_STORAGE": "memory",
                "SLURM_ARRAY_JOB_ID": "5",
                "SLURM_ARRAY_TASK_ID": str(number),
            },
            clock=lambda: self.now,
            pauses=(0.001, 0.001),
        )

    def run(self, number, *, error=None, values=(0.5,), world=None):
        """Run one attempt of a task, which reports its values.

        It ends with success or with `error`.
        """
        with self.task(number, world=world) as trial:
            for step, value in enumerate(values):
                if trial.report(value, step):
                    break
            if error:
                raise error
            trial.complete(values[-1])
        return trial

    @property
    def study(self):
        return optuna.load_study(study_name="digits", storage=self.storage)

    def states(self):
        return [one.state for one in trials.states(self.study)]


@pytest.fixture
def sweep(tmp_path, attempt_of, monkeypatch):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = Sweep(tmp_path, attempt_of, optuna.storages.InMemoryStorage())

    def connect(url):
        assert url == "memory"
        return made.storage

    monkeypatch.setattr(study_storage, "connect", connect)
    monkeypatch.setattr(array_tasks, "queued_tasks", lambda: EVERYTHING)
    return made


def stopped():
    return Stopped(resume(7, "spot-interruption"))


def test_every_task_has_a_trial_of_its_own(sweep):
    numbers = [sweep.run(task).number for task in (2, 0, 1)]
    assert numbers == [0, 1, 2]
    assert sweep.states() == ["complete"] * 3
    assert [one.task for one in trials.states(sweep.study)] == ["5_2", "5_0", "5_1"]
    assert json.loads((sweep.root / "task-2" / "trial.json").read_text())["trial"] == 0


@pytest.mark.parametrize("error", [stopped(), Terminated(143), KeyboardInterrupt()])
def test_an_evicted_task_comes_back_to_its_own_trial_and_parameters(sweep, error):
    with pytest.raises(type(error)):
        sweep.run(0, error=error)
    assert sweep.states() == ["running"]
    before = sweep.study.trials[0].params
    again = sweep.run(0, values=(0.5, 0.6))
    assert (again.number, again.params) == (0, before)
    assert sweep.states() == ["complete"]
    assert sweep.study.trials[0].intermediate_values == {0: 0.5, 1: 0.6}


@pytest.mark.parametrize("error", [ValueError("bad"), Stopped(hold(0, "no-progress", ""))])
def test_a_trial_that_fails_ends_itself_and_no_other(sweep, error):
    with pytest.raises(type(error)):
        sweep.run(0, error=error)
    sweep.run(1)
    assert sweep.states() == ["failed", "complete"]
    assert trials.states(sweep.study)[0].why.startswith(type(error).__name__)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), Stopped(hold(0, "x", "y"))])
def test_a_trial_whose_task_is_judged_by_its_batch_script_goes_on_unless_that_says_no(sweep, error):
    sweep.judged = True
    with pytest.raises(type(error)):
        sweep.run(0, error=error)
    assert sweep.states() == ["running"]
    again = sweep.run(0, values=(0.5, 0.6))
    assert (again.number, sweep.states()) == (0, ["complete"])
    with pytest.raises(type(error)):
        sweep.run(1, error=error)
    at = {"TOOLKIT_SWEEP_STORAGE": "memory"}
    assert [trial_file.end_trial(sweep.attempt(task), at) for task in (0, 1, 2)] == [
        False,
        True,
        False,
    ]
    assert sweep.states() == ["complete", "failed"]
    assert trials.states(sweep.study)[1].why.startswith(type(error).__name__)


@pytest.mark.parametrize("error", [None, SystemExit(0)])
def test_a_trial_without_a_value_fails_whoever_judges_its_task(sweep, error):
    """Fail the trial, because its job succeeded and is not requeued."""
    sweep.judged = True
    with suppress(SystemExit), sweep.task(0):
        if error:
            raise error
    assert trials.states(sweep.study)[0].why == "the script reported no value"


def test_a_failed_task_that_slurm_brings_back_tries_the_same_parameters_again(sweep):
    with pytest.raises(ValueError, match="bad"):
        sweep.run(0, error=ValueError("bad"))
    before = sweep.study.trials[0].params
    again = sweep.run(0)
    assert (again.number, again.params) == (1, before)
    assert sweep.states() == ["failed", "complete"]
    assert sweep.study.trials[1].user_attrs[trials.RETRY_OF] == 0


def test_a_task_whose_trial_is_over_does_nothing_and_ends_well(sweep):
    sweep.run(0, values=(0.9,))
    with pytest.raises(SystemExit) as left:
        sweep.run(0, values=(0.1,))
    assert left.value.code == 0
    assert sweep.study.trials[0].value == 0.9
    assert len(sweep.study.trials) == 1


def test_a_trial_that_was_killed_before_it_could_say_its_value_says_it_later(sweep, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            SweepTrial, "_end_trial", lambda self, value: (_ for _ in ()).throw(stopped())
        )
        with pytest.raises(Stopped):
            sweep.run(0, values=(0.8,))
    assert sweep.states() == ["running"]
    with pytest.raises(SystemExit):
        sweep.run(0, values=(0.1,))
    assert sweep.study.trials[0].value == 0.8


def test_a_trial_that_is_worse_than_the_others_is_pruned(sweep):
    for task in range(6):
        sweep.run(task, values=(0.9, 0.9))
    last = sweep.run(6, values=(0.1, 0.1))
    assert last._is_pruned
    assert sweep.states() == ["complete"] * 6 + ["pruned"]


def test_a_storage_that_is_away_for_a_while_costs_no_trial(sweep, monkeypatch, capsys):
    failures = iter([ConnectionError("away"), ConnectionError("away")])
    real = optuna.Study.tell

    def flaky(self, *args, **kwargs):
        for failure in failures:
            raise failure
        return real(self, *args, **kwargs)

    monkeypatch.setattr(optuna.Study, "tell", flaky)
    monkeypatch.setattr(
        optuna.trial.Trial, "report", lambda *_: (_ for _ in ()).throw(ConnectionError("away"))
    )
    sweep.run(0)
    assert sweep.states() == ["complete"]
    assert "the value of step 0 is not reported" in capsys.readouterr().out


def test_all_ranks_have_rank_0s_trial(sweep, ranks):
    seen = ranks(2, lambda world: sweep.run(0, world=world))
    assert seen[0].params == seen[1].params
    assert seen[0].number == seen[1].number == 0
    assert sweep.states() == ["complete"]


def test_no_rank_waits_for_a_rank_0_that_found_no_storage(sweep, ranks, monkeypatch):
    def away(url):
        raise NoStorage("away")

    monkeypatch.setattr(study_storage, "connect", away)
    found = ranks(2, lambda world: sweep.run(0, world=world))
    assert [type(one) for one in found] == [NoStorage, SystemExit]


def lost_task(sweep):
    """Kill task 0 without a report, and let minutes pass."""
    sweep.task(0).__enter__()._stop_heartbeat.set()
    sweep.now += trials.GRACE_SECONDS + 1


def test_a_silent_trial_whose_task_waits_in_the_queue_is_left_alone(sweep):
    lost_task(sweep)
    assert trials.gone_trials(trials.states(sweep.study), EVERYTHING, sweep.now) == []


def test_a_trial_whose_task_is_gone_is_failed_by_whoever_comes_next(sweep, monkeypatch):
    lost_task(sweep)
    monkeypatch.setattr(array_tasks, "queued_tasks", lambda: frozenset({"5_1"}))
    sweep.run(1)
    assert sweep.states() == ["failed", "complete"]
    assert trials.states(sweep.study)[0].why == trials.TASK_GONE


def test_a_trial_that_was_heard_of_just_now_is_not_gone_though_its_task_is_not_listed(sweep):
    sweep.task(0).__enter__()._stop_heartbeat.set()
    assert trials.gone_trials(trials.states(sweep.study), frozenset(), sweep.now) == []


def test_where_slurm_cannot_be_asked_nothing_is_given_up(sweep, monkeypatch):
    lost_task(sweep)
    monkeypatch.setattr(array_tasks, "queued_tasks", lambda: None)
    sweep.run(1)
    assert sweep.states() == ["running", "complete"]


def test_giving_up_twice_ends_a_trial_once(sweep):
    lost_task(sweep)
    lost = trials.gone_trials(trials.states(sweep.study), frozenset(), sweep.now)
    assert [one.number for one in trials.fail_gone(sweep.study, lost)] == [0]
    assert trials.fail_gone(sweep.study, lost) == []


def test_the_status_counts_names_the_best_and_settles_only_when_asked(sweep):
    for task, value in ((1, 0.5), (2, 0.7)):
        sweep.run(task, values=(value,))
    lost_task(sweep)

    def ask(**options):
        flags = {"fail_gone": False, "dry_run": False, **options}
        return status.sweep_state(sweep.study, frozenset(), sweep.now, count=1, **flags)

    found = ask()
    assert found["counts"] == {"complete": 2, "running": 1}
    assert [one["value"] for one in found["best"]] == [0.7]
    assert (found["gone"], found["settled"]) == ([2], [])
    assert ask(fail_gone=True, dry_run=True)["settled"] == [2]
    assert sweep.states()[2] == "running"
    assert ask(fail_gone=True)["counts"] == {"complete": 2, "failed": 1}


def test_the_queue_is_what_squeue_says_and_unknown_when_it_does_not():
    assert array_tasks.queued_tasks(lambda _: "5_0\n5_12\n7_N/A\n") == {"5_0", "5_12"}

    def away(argv):
        raise OSError("no squeue")

    assert array_tasks.queued_tasks(away) is None


def test_a_cluster_without_a_storage_says_what_to_do(tmp_path):
    with pytest.raises(NoStorage, match="TOOLKIT_SWEEP_STORAGE"):
        study_storage.address({"TOOLKIT_SITE_FILE": str(tmp_path / "absent")})
