"""Records reach the tracking server in order, after outages as well.

Training never waits for the server.
"""

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace

import pytest

from tests.fakes import checkpoint_disk as disk
from toolkit.training import SampleOrder
from toolkit.training.attempt.fencing import Fence
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import RecordRejected
from toolkit.training.io.durable_files import read_json, write_json
from toolkit.training.recording.recorder import RunRecorder
from toolkit.training.run import Run
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.tracking.mlflow import MlflowServer, end_mlflow_run, tracker_for
from toolkit.training.tracking.tracker import NoTracker, Tracker, TrackingRecord, as_floats


@dataclass
class Server:
    """A tracking server that can be away and can refuse records."""

    away: bool = False
    misses: int = 0  # the number of calls that fail
    refused: str = ""
    runs: int = 0
    got: list = field(default_factory=list)
    states: list = field(default_factory=list)
    tried: threading.Event = field(default_factory=threading.Event)

    def open(self, run_id):
        self._here()
        if run_id is None:
            self.runs += 1
            return f"run-{self.runs}"
        return run_id

    def send(self, run_id, records):
        self._here()
        if any(self.refused in record.params for record in records):
            raise RecordRejected(self.refused)
        self.got += [(run_id, record.step) for record in records]
        self.states += [record.status for record in records]

    def _here(self):
        self.tried.set()
        self.misses -= 1
        if self.away or self.misses >= 0:
            raise ConnectionError("refused")


@pytest.fixture
def tracker(tmp_path):
    warnings = []

    def make(server, folder=tmp_path, **options):
        made = Tracker(
            lambda: server,
            folder,
            warnings.append,
            **{"pauses": (0.001,), "linger": 0, **options},
        )
        made.warnings = warnings
        return made

    return make


def metric(step):
    return TrackingRecord(at=float(step), step=step, metrics={"loss": 1.0})


def test_records_arrive_in_order(tracker):
    server = Server()
    made = tracker(server)
    for step in range(1200):
        made.add(metric(step))
    assert made.close(30)
    assert server.got == [("run-1", step) for step in range(1200)]


def test_all_attempts_are_one_run(tracker, tmp_path):
    server = Server()
    for step in (0, 1):
        made = tracker(server)
        made.add(metric(step))
        made.close(30)
    assert server.got == [("run-1", 0), ("run-1", 1)]
    assert read_json(tmp_path / "mlflow.json") == {"run_id": "run-1"}


def test_a_server_that_is_away_is_warned_of_once_and_told_later(tracker):
    server = Server(away=True)
    made = tracker(server)
    made.add(metric(0))
    server.tried.wait(30)
    server.away = False
    made.add(metric(1))
    assert made.close(30)
    assert server.got == [("run-1", 0), ("run-1", 1)]
    assert len([text for text in made.warnings if "can't be reached" in text]) == 1


def test_what_could_not_be_sent_is_sent_first_by_the_next_attempt(tracker, tmp_path):
    server = Server(away=True)
    made = tracker(server)
    made.add(metric(0))
    assert not made.close(30)
    assert (tmp_path / "tracking-backlog.json").exists()
    server.away = False
    made = tracker(server)
    made.add(metric(1))
    assert made.close(30)
    assert [step for _, step in server.got] == [0, 1]
    assert not (tmp_path / "tracking-backlog.json").exists()


@pytest.fixture
def place(tmp_path):
    """The fence of the run's owner."""
    made = tmp_path / "checkpoints" / "owner" / "12.0.first.ab"
    made.mkdir(parents=True)
    return made


def test_a_backlog_that_was_sent_is_sent_once_where_checkpoints_are_on_another_filesystem(
    tracker, tmp_path, other_filesystem
):
    (tmp_path / "checkpoints").symlink_to(other_filesystem)
    place = tmp_path / "checkpoints" / "owner" / "12.0.first.ab"
    place.mkdir(parents=True)
    server = Server(away=True)
    made = tracker(server, fence=Fence(place))
    made.add(metric(0))
    assert not made.close(30)
    server.away = False
    for _ in range(2):
        assert tracker(server, fence=Fence(place)).close(30)
    assert [step for _, step in server.got] == [0]


def test_an_attempt_whose_run_was_taken_over_sends_no_backlog_and_leaves_it_to_its_successor(
    tracker, tmp_path, place
):
    server = Server(away=True)
    before = tracker(server, fence=Fence(place))
    before.add(metric(0))
    assert not before.close(30)
    place.rmdir()
    server.away, server.tried = False, threading.Event()
    kept = (tmp_path / "tracking-backlog.json").read_bytes()
    late = tracker(server, fence=Fence(place))
    late.add(metric(1))
    assert not late.close(30)
    assert (server.got, server.runs, server.tried.is_set()) == ([], 0, False)
    assert (tmp_path / "tracking-backlog.json").read_bytes() == kept
    assert not (tmp_path / "mlflow.json").exists()


def test_an_attempt_superseded_while_it_trains_or_waits_for_the_server_sends_no_backlog(
    tracker, tmp_path, place
):
    server = Server()
    made = tracker(server, fence=Fence(place))
    made.add(metric(0))
    while not server.got:
        time.sleep(0.001)
    server.away = True
    made.add(metric(1))
    place.rmdir()
    server.away = False
    made.add(TrackingRecord(at=2.0, status="FAILED"))
    assert not made.close(30)
    assert "FAILED" not in server.states
    assert not (tmp_path / "tracking-backlog.json").exists()


def test_what_an_attempt_has_to_tell_that_began_while_the_server_was_away_is_told_of_the_run(
    tracker, tmp_path
):
    write_json(tmp_path / "mlflow.json", {"run_id": "run-7"})
    server = Server(away=True)
    made = tracker(server)
    made.add(metric(0))
    while not made.warnings:
        time.sleep(0.001)
    server.away = False
    assert made.close(30)
    assert server.got == [("run-7", 0)]


def test_where_it_can_not_be_told_whose_the_run_is_records_wait(tracker, place, monkeypatch):
    server = Server()
    with monkeypatch.context() as patch:
        patch.setattr("toolkit.training.attempt.fencing.os.utime", disk.fail)
        made = tracker(server, fence=Fence(place))
        made.add(metric(0))
        while not made.warnings:
            time.sleep(0.001)
        assert server.got == []
    assert made.close(30)
    assert server.got == [("run-1", 0)]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(("misses", "told"), [(0, True), (1, True), (2, False)])
def test_as_an_attempt_ends_what_failed_once_is_tried_once_more(tracker, misses, told):
    server = Server(misses=misses)
    made = tracker(server, linger=60)  # nothing is sent before the end
    made.add(TrackingRecord(at=1.0, status="FINISHED"))
    assert made.close(30) is told
    assert server.states == ["FINISHED"] * told


@pytest.fixture
def finishes(tracker, attempt_of, tmp_path, json_codec, part):
    """A function that trains run `number` and returns the last status.

    The status is the one that the server got.
    """

    def train(number):
        server, folder = Server(), tmp_path / f"run-{number}"
        place = folder / "checkpoints" / "owner" / "12.0.first.ab"
        place.mkdir(parents=True)
        attempt = replace(attempt_of(), run_dir=folder, fence=Fence(place))
        doubles = {"world": Solo(), "codec": json_codec}
        doubles["tracker"] = tracker(server, folder, fence=attempt.fence)
        # A verdict that can't be written makes Slurm requeue the job.
        with suppress(OSError), Run(params={}, seed=1, attempt=attempt, **doubles) as run:
            run.resume(model=part())
            for batch in run.batches(SampleOrder(size=8, global_batch=8, seed=1), 1):
                run.step(batch)
        return server.states[-1]

    return train


def test_an_error_of_any_one_operation_as_a_finished_run_ends_leaves_it_finished(
    finishes, monkeypatch
):
    end, met, number = RunRecorder.close, [], 0

    def struck(books, *words, **options):
        nonlocal met
        with disk.strike(number, disk.fail, disk.CALLS) as met:
            end(books, *words, **options)

    monkeypatch.setattr(RunRecorder, "close", struck)
    while len(met) >= number:
        number += 1
        assert finishes(number) == "FINISHED", f"operation {number}"
    assert number > 10


def test_the_state_that_an_earlier_attempt_ended_in_is_not_sent_after_the_next_has_begun(tracker):
    server = Server(away=True)
    made = tracker(server)
    made.add(TrackingRecord(at=1.0, step=0, metrics={"loss": 1.0}, status="FAILED"))
    assert not made.close(30)
    server.away = False
    assert tracker(server).close(30)
    assert [(step, state) for (_, step), state in zip(server.got, server.states, strict=True)] == [
        (0, "")
    ]


def test_a_record_that_is_refused_takes_no_other_with_it(tracker):
    server = Server(refused="changed")
    made = tracker(server)
    for record in (metric(0), TrackingRecord(at=1, step=1, params={"changed": "2"}), metric(2)):
        made.add(record)
    assert made.close(30)
    assert [step for _, step in server.got] == [0, 2]
    assert made.warnings == ["tracking: the server refused a record: changed"]


def test_a_metric_that_is_no_number_is_left_out():
    assert as_floats({"loss": float("nan"), "rate": 1}) == {"rate": 1.0}


def test_without_a_server_nothing_is_tracked(attempt_of, tmp_path):
    environment = {"TOOLKIT_SITE_FILE": str(tmp_path / "absent")}
    assert isinstance(tracker_for(attempt_of(), None, print, environment), NoTracker)


def test_a_run_that_ends_gets_the_time_of_its_end(monkeypatch):
    """Call set_terminated.

    MLflow's update_run looks right but leaves the end time open.
    """
    entities = ModuleType("mlflow.entities")
    entities.Metric = entities.Param = entities.RunTag = tuple
    exceptions = ModuleType("mlflow.exceptions")
    exceptions.MlflowException = RuntimeError
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", exceptions)
    ended = []

    class Client:
        def set_terminated(self, run_id, status, end_time):
            ended.append((run_id, status, end_time))

    server = object.__new__(MlflowServer)
    server._client = Client()
    server.send("r1", [TrackingRecord(at=12.5, status="KILLED")])
    assert ended == [("r1", "KILLED", 12500)]


def test_a_run_has_its_jobs_number_before_its_worker_knows_of_it(monkeypatch):
    """Tag the run with its job id when it is created.

    If the answer is lost, slurm-runs on the head node still finds and ends the run.
    """
    made = []

    class Client:
        def get_experiment_by_name(self, name):
            return SimpleNamespace(experiment_id="1")

        def search_runs(self, experiments, wanted, max_results):
            return []

        def create_run(self, experiment, tags, run_name):
            made.append(tags)
            raise TimeoutError

    monkeypatch.setattr("mlflow.tracking.MlflowClient", lambda **_: Client())
    server = MlflowServer("http://head", experiment="e", name="n", key="k", user="ada", job_id="32")
    with pytest.raises(TimeoutError):
        server.open(None)
    assert made[0]["toolkit.job_id"] == "32"


def test_a_batch_script_ends_the_run_that_its_workers_had_and_no_other(
    attempt_of, tmp_path, monkeypatch
):
    server = Server()
    monkeypatch.setattr("toolkit.training.tracking.mlflow.MlflowServer", lambda *_, **__: server)
    at = {"MLFLOW_TRACKING_URI": "http://head", "TOOLKIT_SITE_FILE": str(tmp_path / "none")}
    attempt = attempt_of()
    assert not end_mlflow_run(attempt, "FAILED", 1.0, at)
    RunFolder(attempt.run_dir).create()
    write_json(attempt.run_dir / "mlflow.json", {"run_id": "run-7"})
    assert not end_mlflow_run(attempt, "FAILED", 1.0, at | {"MLFLOW_TRACKING_URI": ""})
    assert end_mlflow_run(attempt, "FAILED", 1.0, at)
    assert (server.got, server.states, server.runs) == ([("run-7", 0)], ["FAILED"], 0)
    server.away = True
    assert not end_mlflow_run(attempt, "FAILED", 1.0, at)


@pytest.mark.parametrize("run_id", [None, "run-7"])
def test_the_end_of_a_run_sends_the_records_that_its_workers_could_not(
    run_id, attempt_of, tracker, tmp_path, monkeypatch
):
    """A script may fail before its process has imported MLflow's client."""
    at = {"MLFLOW_TRACKING_URI": "http://head", "TOOLKIT_SITE_FILE": str(tmp_path / "none")}
    attempt = attempt_of()
    RunFolder(attempt.run_dir).create()
    if run_id:
        write_json(attempt.run_dir / "mlflow.json", {"run_id": run_id})
    workers_tracker = tracker(Server(away=True), attempt.run_dir)
    workers_tracker.add(metric(3))
    workers_tracker.close(30)
    server = Server()
    monkeypatch.setattr("toolkit.training.tracking.mlflow.MlflowServer", lambda *_, **__: server)
    assert end_mlflow_run(attempt, "FAILED", 4.0, at)
    name = run_id or "run-1"
    assert (server.got, server.states) == ([(name, 3), (name, 0)], ["", "FAILED"])
    assert read_json(attempt.run_dir / "mlflow.json") == {"run_id": name}
    assert not (attempt.run_dir / "tracking-backlog.json").exists()
