"""A stop request counts for one attempt of one cluster.

The shared folder may outlive a cluster. The next cluster counts its jobs from 1.
"""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.own_job import FakeScontrol
from toolkit.training import SampleOrder
from toolkit.training.attempt import verdict
from toolkit.training.attempt.stop_request import StopFiles
from toolkit.training.distributed.process_group import Solo
from toolkit.training.io.durable_files import write_json
from toolkit.training.requeue import previous_attempts
from toolkit.training.requeue.end_of_attempt import EndOfAttempt
from toolkit.training.run import Run, Stopped
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.slurm.job import SlurmJob

BEGAN = 2_000_000_000.0
OURS = [{}, {"at": "?"}, {"at": BEGAN + 60}, {"at": BEGAN - 60}]  # a request may come in the prolog
THEIRS = {"cause": "spot-interruption", "at": BEGAN - 7200}


@pytest.fixture
def attempt(attempt_of):
    attempt = replace(attempt_of(), started_at=BEGAN)
    RunFolder(attempt.run_dir).create()
    attempt.stop_dir.mkdir()
    return attempt


@pytest.fixture
def train(attempt, json_codec, part, memory_tracker):
    def run():
        with Run(
            params={},
            seed=1,
            attempt=attempt,
            world=Solo(),
            codec=json_codec,
            tracker=memory_tracker,
        ) as run:
            run.resume(model=part({"sum": 0}))
            for batch in run.batches(SampleOrder(size=30, global_batch=8, seed=1), 3):
                run.step(batch)
        return run.step_count

    return run


@pytest.mark.parametrize("at", [0, 1], ids=["the node agent's", "the batch script's"])
def test_a_request_to_a_job_of_this_number_in_a_cluster_before_stops_nobody(attempt, train, at):
    write_json(attempt.stop_files[at], THEIRS)
    assert train() == 12


@pytest.mark.parametrize("written", OURS)
def test_a_request_that_may_be_this_attempts_is_heard(attempt, train, written):
    write_json(attempt.stop_files[0], {"cause": "spot-interruption"} | written)
    with pytest.raises(Stopped):
        train()


def test_a_request_of_today_is_heard_where_one_of_a_cluster_before_was(attempt):
    files = StopFiles(attempt.stop_files, attempt.started_at, every_seconds=0)
    write_json(attempt.stop_files[0], THEIRS)
    assert not files.poll()
    write_json(attempt.stop_files[0], THEIRS | {"at": BEGAN + 9})
    assert files.poll()


def test_an_attempt_does_not_end_by_what_a_job_of_a_cluster_before_was_asked(attempt):
    write_json(attempt.stop_files[0], THEIRS)
    verdict.failed(3, "ValueError: bad shape").write(attempt.verdict_file)
    outcome = EndOfAttempt(attempt, SlurmJob("12", FakeScontrol()), {}).judge(1)
    assert (outcome.code, "ended by error: " in outcome.log_lines[0]) == (1, True)


def test_a_stop_request_of_an_earlier_cluster_does_not_classify_a_lost_attempt(attempt):
    write_json(attempt.stop_files[0], THEIRS)
    books = AttemptsFile(attempt.run_dir / "attempts.jsonl")
    books.append(AttemptRecord.at_start(attempt, 0, BEGAN, world_size=1, nodes=(), instances=()))
    books.close_lost(last_seen=BEGAN, step_end=0)
    later = replace(attempt, restart_count=1, started_at=BEGAN + 10_000)
    previous_attempts.classify_previous(books, later, SlurmJob("12", FakeScontrol()), {})
    assert books.attempts()[0].cause == "lost"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_stop_files_are_looked_at_no_more_often_than_agreed(tmp_path):
    clock = Clock()
    stop = StopFiles([tmp_path / "stop.json"], clock=clock, every_seconds=0.2)
    assert not stop.poll()
    (tmp_path / "stop.json").write_text('{"cause": "spot-interruption", "deadline": 120}')
    clock.now = 0.1
    assert not stop.poll()
    clock.now = 0.2
    assert stop.poll()
    assert (stop.request.cause, stop.request.deadline) == ("spot-interruption", 120.0)
    (tmp_path / "stop.json").unlink()
    assert stop.poll()


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"\xff\xfe", b'{"deadline": "soon"}', b"{" * 9999]
)
def test_a_stop_file_that_says_nonsense_is_still_a_stop_request(tmp_path, content):
    (tmp_path / "stop.json").write_bytes(content)
    stop = StopFiles([tmp_path / "stop.json"], clock=Clock())
    assert stop.poll()
    assert (stop.request.cause, stop.request.deadline) == ("unreadable-request", None)


def test_what_can_not_be_looked_at_asks_for_no_stop_and_is_looked_at_again(
    tmp_path, monkeypatch, capsys
):
    clock, away = Clock(), tmp_path / "run" / "stop.json"
    stop = StopFiles([tmp_path / "stop.json", away], clock=clock)
    there = Path.stat

    def stat(path, **options):
        if path == away:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return there(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        for clock.now in range(3):
            assert not stop.poll()
    assert capsys.readouterr().err.count("Stale file handle") == 1
    away.parent.mkdir()
    away.write_text('{"cause": "time-limit"}')
    clock.now += 1
    assert stop.poll()
