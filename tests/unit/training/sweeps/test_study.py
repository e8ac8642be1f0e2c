"""A sweep loses no trial while its storage is unreachable."""

import errno
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.fakes.own_job import FakeScontrol
from toolkit.training import SampleOrder
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import NoStorage
from toolkit.training.io import durable_files
from toolkit.training.requeue.end_of_attempt import EndOfAttempt
from toolkit.training.run import Run
from toolkit.training.slurm.job import SlurmJob
from toolkit.training.sweeps import array_tasks, study as study_storage, trial_file, trials
from toolkit.training.sweeps.trial import STORAGE_TRIES, SweepTrial

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
URL = "grpc://10.0.0.5:13000"
ORDER = SampleOrder(size=16, global_batch=8, seed=1)


@dataclass
class Proxy:
    """Optuna's storage with outages.

    It answers `answers` questions more. It refuses `away` connections.
    """

    real: object = field(default_factory=optuna.storages.InMemoryStorage)
    answers: float = float("inf")
    away: int = 0

    def connect(self, url):
        if self.away:
            self.away -= 1
            raise NoStorage(f"{url} does not answer")
        try:
            self._asked()
        except RuntimeError as error:
            raise NoStorage(f"{url} does not answer") from error
        return self

    def _asked(self):
        self.answers -= 1
        if self.answers < 0:
            no_answer()

    def __getattr__(self, name) -> Any:
        found = getattr(self.real, name)

        def ask(*arguments, **more):
            self._asked()
            return found(*arguments, **more)

        return ask


@pytest.fixture
def proxy(monkeypatch):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = Proxy()
    monkeypatch.setattr(study_storage, "connect", made.connect)
    monkeypatch.setattr(array_tasks, "queued_tasks", lambda: None)
    return made


@pytest.fixture
def study(proxy):
    return lambda: optuna.load_study(study_name="digits", storage=proxy.real)


@pytest.fixture
def at(tmp_path):
    """An environment on a cluster whose head node has a storage."""
    site = tmp_path / "site.json"
    site.write_text(json.dumps({"sweep_storage": URL}))
    return {"TOOLKIT_SWEEP": "digits", "TOOLKIT_SITE_FILE": str(site)}


@pytest.fixture
def task(at, attempt_of, json_codec, part, memory_tracker):
    """A function that runs an attempt and returns its exit code.

    With `judged` the batch script judges the attempt's end.
    """
    log = Path(at["TOOLKIT_SITE_FILE"]).with_name("job.log")

    def script(attempt):
        trial = SweepTrial(
            lambda trial: {"rate": trial.suggest_float("rate", 0, 1)},
            direction="maximize",
            world=Solo(),
            attempt=attempt,
            environment=at,
            pauses=(0,),
        )
        run = Run(
            params={},
            seed=1,
            attempt=attempt,
            world=Solo(),
            codec=json_codec,
            tracker=memory_tracker,
        )
        with trial:
            with run:
                run.resume(model=part({"sum": 0}))
                for batch in run.batches(ORDER, 2):
                    run.step(batch)
                    trial.report(0.5, batch.step)
                run.finish()
            trial.complete(0.97)

    def attempt(restart, *, judged=True):
        mine = attempt_of(restart, judged=judged)
        mine.run_dir.mkdir(exist_ok=True)
        memory_tracker.closed, code, said = False, 0, ""
        try:
            script(mine)
        except SystemExit as left:
            code = left.code
        except Exception as error:  # noqa: BLE001  # Python exits with 1
            code, said = 1, f"[rank0]: {type(error).__module__}.{type(error).__name__}: {error}\n"
        if not judged:
            return code
        with log.open("a") as stream:
            stream.write(f"[toolkit] job 12, restart {restart}, run folder x\n{said}")
        job = SlurmJob("12", FakeScontrol())
        ending = EndOfAttempt(mine, job, {"TOOLKIT_LOG": str(log)}, chance=lambda: 0.5)
        return ending.judge(code).code

    return attempt


def test_a_storage_that_goes_at_any_of_a_trials_questions_costs_no_trial_and_no_value(
    proxy, study, task, tmp_path
):
    asked, codes = 0, set()
    while True:
        proxy.real, proxy.answers = optuna.storages.InMemoryStorage(), asked
        codes.add(code := task(10 * asked))
        away = proxy.answers < 0
        proxy.answers = float("inf")
        if code != 0:
            assert task(10 * asked + 1) == 0, asked
        assert [(one.state, one.value) for one in trials.states(study())] == [("complete", 0.97)]
        if not away:
            break
        (tmp_path / "run").rename(tmp_path / f"run-{asked}")
        asked += 1
    assert asked > 10
    assert codes == {0, 85}


def no_answer(*_, **__):
    raise RuntimeError("status = StatusCode.UNAVAILABLE, failed to connect")


def test_a_value_that_the_sweep_has_not_heard_is_told_by_the_next_start_whoever_makes_it(
    study, task, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(trials, "end_trial", no_answer)
        assert task(0, judged=False) == 1
    assert [one.state for one in trials.states(study())] == ["running"]
    assert task(1, judged=False) == 0
    assert [one.value for one in trials.states(study())] == [0.97]


@pytest.mark.parametrize("heard", [True, False])
def test_a_value_is_not_lost_though_the_run_folder_takes_no_writes_as_it_is_told(
    study, task, monkeypatch, heard
):
    """Keep the value although the run folder can't be written.

    The value reaches the sweep, or the job is requeued after its training.
    """
    complete, write, struck = SweepTrial.complete, durable_files._write_temporary, []

    def fails(path, content):
        struck.append(path)
        if len(struck) > failing:
            return write(path, content)
        raise OSError(errno.EIO, "Input/output error", str(path))

    def completes(trial, value):
        with monkeypatch.context() as patched:
            patched.setattr(durable_files, "_write_temporary", fails)
            if not heard:
                patched.setattr(trials, "end_trial", no_answer)
            complete(trial, value)

    monkeypatch.setattr(SweepTrial, "complete", completes)
    for failing in (1, 2):
        struck.clear()
        code = task(10 * failing)
        assert code == (0 if heard else 85)
        if heard:
            assert [one.value for one in trials.states(study())] == [0.97]


@pytest.mark.parametrize("state", ["complete", "pruned"])
def test_a_trial_with_a_value_has_not_failed_though_its_task_does_not_come_back(
    at, study, task, attempt_of, *, monkeypatch, state
):
    with monkeypatch.context() as patched:
        patched.setattr(trials, "end_trial", no_answer)
        assert task(0) == 85
    attempt = attempt_of(0)
    trial_file.add(attempt.run_dir, pruned=state == "pruned")
    assert trial_file.end_trial(attempt, at)
    assert [one.state for one in trials.states(study())] == [state]


def test_a_head_that_restarts_as_a_task_begins_is_waited_for(proxy, task, capsys):
    proxy.away = STORAGE_TRIES - 1
    assert task(0) == 0
    assert (
        capsys.readouterr().out.count(f"{URL} does not answer: trying again") == STORAGE_TRIES - 1
    )


def test_a_name_at_which_nobody_was_ever_met_is_tried_once_and_brings_no_task_back(
    at, task, monkeypatch
):
    asked = []

    def connect(url):
        asked.append(url)
        raise NoStorage(f"{url} does not answer")

    monkeypatch.setattr(study_storage, "connect", connect)
    at["TOOLKIT_SWEEP_STORAGE"] = "grpc://haed:5100"
    assert task(0) == 1
    assert asked == ["grpc://haed:5100"]


def test_another_storage_that_a_task_has_met_is_waited_for_as_the_heads_is(
    at, proxy, task, monkeypatch
):
    at["TOOLKIT_SWEEP_STORAGE"] = "grpc://other:5100"
    with monkeypatch.context() as patched:
        patched.setattr(trials, "end_trial", no_answer)
        assert task(0) == 85
    proxy.away = STORAGE_TRIES - 1
    assert task(1) == 0


def test_where_no_storage_is_named_nobody_waits(attempt_of, monkeypatch, tmp_path):
    def connect(_):
        raise AssertionError

    monkeypatch.setattr(study_storage, "connect", connect)
    at = {"TOOLKIT_SITE_FILE": str(tmp_path / "absent")}
    trial = SweepTrial(dict, world=Solo(), attempt=attempt_of(), environment=at)
    with pytest.raises(NoStorage, match="TOOLKIT_SWEEP_STORAGE"):
        trial.__enter__()
