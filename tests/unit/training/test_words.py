"""What passes between the batch script, the node agent and the workers, in files."""

import errno
import subprocess
import sys
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import pytest

from slurmplugins.head import mlflow
from slurmplugins.slurm import json_parser
from toolkit.training.attempt import exception_verdict, verdict
from toolkit.training.attempt.attempt import current
from toolkit.training.attempt.sigterm import Terminated
from toolkit.training.attempt.stop_request import StopFiles
from toolkit.training.io import cluster_info
from toolkit.training.io.durable_files import (
    encode,
    read_json,
    read_lines,
    write_atomic,
    write_first,
)
from toolkit.training.recording import recorder as run_record
from toolkit.training.recording.goodput import split
from toolkit.training.reproduce import git_commit
from toolkit.training.run_folder import attempts
from toolkit.training.run_folder.steps import History
from toolkit.training.slurm.job_id import task_name


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_importing_the_library_imports_neither_torch_nor_numpy_nor_mlflow():
    code = (
        "import sys, toolkit.training\n"
        "print([m for m in ('torch', 'numpy', 'mlflow', 'click', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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


def test_an_attempt_is_judged_by_the_batch_script_that_says_so_and_no_other():
    at = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "3"}
    assert not current(at).judged
    assert not current(at | {"TOOLKIT_JUDGED_ATTEMPT": "11.3"}).judged, "the job it was sent from"
    assert current(at | {"TOOLKIT_JUDGED_ATTEMPT": "12.3"}).judged


def test_a_first_start_has_restart_count_0_though_slurm_leaves_it_unset(tmp_path):
    found = current({"SLURM_JOB_ID": "12", "TOOLKIT_RUN_DIR": str(tmp_path)})
    assert found.restart_count == 0
    assert found.verdict_file == tmp_path / "verdict.12.0.json"
    assert str(found.stop_files[0]) == "/shared/.toolkit/stop/12.0.json"
    assert found.stop_files[1] == tmp_path / "stop.12.0.json"


def test_a_job_id_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not a job id"):
        current({"SLURM_JOB_ID": "../12"})


def test_site_and_instance_facts_are_empty_off_the_cluster(tmp_path):
    nowhere = {
        "TOOLKIT_INSTANCE_FILE": str(tmp_path / "a"),
        "TOOLKIT_SITE_FILE": str(tmp_path / "b"),
    }
    assert cluster_info.instance_facts(nowhere) == cluster_info.site_facts(nowhere) == {}


@pytest.mark.parametrize(
    ("word", "code"),
    [
        (verdict.done(5), 0),
        (verdict.resume(5, "spot-interruption"), 85),
        (verdict.hold(5, "no-progress", "why"), 93),
        (verdict.failed(5, "ValueError", 3), 3),
        (verdict.failed(5, "a script's own 85 asks Slurm for nothing", 85), 1),
    ],
)
def test_a_verdict_comes_back_as_it_was_written(tmp_path, word, code):
    word.write(tmp_path / "verdict.json")
    assert verdict.read(tmp_path / "verdict.json") == word
    assert word.exit_code == code


def test_of_several_failing_ranks_the_first_is_heard(tmp_path):
    path = tmp_path / "verdict.json"
    assert verdict.failed(5, "ValueError").write_first(path)
    assert not verdict.resume(5, "peer-lost").write_first(path)
    assert verdict.read(path).detail == "ValueError"
    assert [entry.name for entry in tmp_path.iterdir()] == ["verdict.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"verdict": "done"}', b"[]"])
def test_what_is_no_verdict_is_none(tmp_path, content):
    (tmp_path / "verdict.json").write_bytes(content)
    assert verdict.read(tmp_path / "verdict.json") is None


_GLOO = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error"
    " [127.0.0.1]:31960: Connection reset by peer. This is typically caused by a remote worker"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(_GLOO), ("resume", "peer-lost")),
        (RuntimeError("Connection closed by peer [10.42.1.5]:2345"), ("resume", "peer-lost")),
        (RuntimeError("NCCL Error 6: unhandled: remote process exited"), ("resume", "peer-lost")),
        (ConnectionResetError(104, "Connection reset by peer"), ("resume", "peer-lost")),
        (Terminated(143), ("resume", "terminated")),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ("failed", "error")),
        (ValueError("Connection reset by peer"), ("failed", "error")),
        (KeyboardInterrupt(), ("failed", "error")),
        (SystemExit("no data"), ("failed", "error")),
    ],
)
def test_a_rank_that_went_away_is_told_from_the_scripts_own_fault(error, expected):
    word = exception_verdict.verdict_of(error, 7)
    assert (word.verdict, word.cause) == expected


def record(number, **changes):
    fields = {
        "attempt": number, "job_id": "12", "restart_count": number, "started_at": 100.0,
        "ended_at": None, "seconds": None, "cause": attempts.RUNNING, "step_start": 0,
        "step_end": None, "world_size": 2, "nodes": ("gpu-001", "gpu-002"),
        "instances": ({"price": "0.4"}, {"price": "0.5"}), "cost_usd": None,
    }  # fmt: skip
    return attempts.AttemptRecord(**(fields | changes))


def test_an_attempt_costs_its_machines_prices_times_its_seconds(tmp_path):
    books = attempts.Ledger(tmp_path / "attempts.jsonl")
    books.begin(record(0))
    books.update(record(0).ended(at=1900.0, cause="spot-interruption", step_end=50))
    (only,) = books.attempts()
    assert (only.seconds, only.cost_usd) == (1800.0, "0.450000")
    assert only == record(0).ended(at=1900.0, cause="spot-interruption", step_end=50)


def test_a_ledger_of_a_later_version_is_read_without_what_only_that_knows(tmp_path):
    path = tmp_path / "attempts.jsonl"
    path.write_bytes(encode(asdict(record(0)) | {"mood": "fine"}))
    books = attempts.Ledger(path)
    books.begin(record(1))
    assert books.attempts() == (record(0), record(1))


def test_without_a_price_there_is_no_cost_and_no_zero():
    ended = record(0, instances=({"instance_type": "g5.xlarge"},)).ended(
        at=200.0, cause="finished", step_end=5
    )
    assert ended.cost_usd is None
    assert attempts.total_cost([ended]) is None


@pytest.mark.parametrize("unread", [(), ({},), ({"price": None},), ({"price": "?"},)])
def test_a_machine_that_could_not_be_asked_costs_what_the_others_do(unread):
    hour = record(0, nodes=("n1", "n2", "n3"), instances=({"price": "8"}, {"price": "10"}, *unread))
    ended = hour.ended(at=3700.0, cause="finished", step_end=5)
    assert ended.cost_usd == "27.000000"
    spent = split([ended], History((), (), (), 0), (), now=9e9).cost_usd
    assert sum(map(Decimal, spent.values())) == 27


def test_progress_is_counted_per_job_by_where_attempts_begin():
    same = [record(number, step_start=40) for number in range(3)]
    assert attempts.stalled(same, "12", 40)
    assert not attempts.stalled(same, "12", 41)
    assert not attempts.stalled(same[:2], "12", 40)
    assert not attempts.stalled(same, "13", 40)
    never_began = record(3, step_start=None)
    assert attempts.stalled([*same[1:], never_began], "12", 40)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.json"
    write_atomic(path, b"1")
    write_atomic(path, b"2")
    assert path.read_bytes() == b"2"
    assert not write_first(path, b"3")
    assert path.read_bytes() == b"2"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_what_is_no_object_reads_as_none(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b'{"a": 1}\n[2]\n{"b"\n\n{"c": 3}')
    assert list(read_lines(path)) == [{"a": 1}, None, None, {"c": 3}]
    assert read_json(path) is None


def test_the_commit_comes_from_who_knows_it_best(tmp_path):
    script = tmp_path / "digits" / "train.py"
    script.parent.mkdir()
    script.write_text("print()")
    assert "mlflow.source.git.commit" not in git_commit.code_of(script, {}).tags()
    (tmp_path / "GIT_SHA").write_text("abc123+dirty\n")
    tags = git_commit.code_of(script, {}).tags()
    assert (tags["mlflow.source.git.commit"], tags["toolkit.git_dirty"]) == ("abc123", "true")
    tags = git_commit.code_of(script, {"TOOLKIT_GIT_SHA": "def"}).tags()
    assert (tags["mlflow.source.git.commit"], tags["toolkit.git_dirty"]) == ("def", "false")


def test_the_head_finds_a_jobs_runs_by_the_tag_that_the_job_writes(attempt_of):
    """A job can't import what runs on the head; so each has the word."""
    mine = attempt_of()
    assert run_record._facts(mine, [], 1)[mlflow.JOB_TAG] == mine.job_id


@pytest.mark.parametrize("job", ["7", "40"])
def test_the_head_and_the_job_name_an_arrays_task_alike(job):
    environment = {"SLURM_JOB_ID": "40", "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "0"}
    of_task = {"array_job_id": 40, "array_task_id": 0} if job == "40" else {}
    assert str(json_parser.job_id({"job_id": int(job), **of_task})) == task_name(job, environment)
