"""The attempts file of a run: costs, progress and other versions."""

from dataclasses import asdict
from decimal import Decimal

import pytest

from toolkit.training.io.durable_files import encode_line
from toolkit.training.recording.goodput import split
from toolkit.training.run_folder import attempts
from toolkit.training.run_folder.steps import History


def record(number, **changes):
    fields = {
        "attempt": number, "job_id": "12", "restart_count": number, "started_at": 100.0,
        "ended_at": None, "seconds": None, "cause": attempts.RUNNING, "step_start": 0,
        "step_end": None, "world_size": 2, "nodes": ("gpu-001", "gpu-002"),
        "instances": ({"price": "0.4"}, {"price": "0.5"}), "cost_usd": None,
    }  # fmt: skip
    return attempts.AttemptRecord(**(fields | changes))


def test_an_attempt_costs_its_instances_prices_times_its_seconds(tmp_path):
    books = attempts.AttemptsFile(tmp_path / "attempts.jsonl")
    books.append(record(0))
    books.replace_last(record(0).with_end(at=1900.0, cause="spot-interruption", step_end=50))
    (only,) = books.attempts()
    assert (only.seconds, only.cost_usd) == (1800.0, "0.450000")
    assert only == record(0).with_end(at=1900.0, cause="spot-interruption", step_end=50)


def test_an_attempts_file_of_a_later_version_is_read_without_what_only_that_knows(tmp_path):
    path = tmp_path / "attempts.jsonl"
    path.write_bytes(encode_line(asdict(record(0)) | {"mood": "fine"}))
    books = attempts.AttemptsFile(path)
    books.append(record(1))
    assert books.attempts() == (record(0), record(1))


def test_without_a_price_there_is_no_cost_and_no_zero():
    ended = record(0, instances=({"instance_type": "g5.xlarge"},)).with_end(
        at=200.0, cause="finished", step_end=5
    )
    assert ended.cost_usd is None
    assert attempts.total_cost([ended]) is None


@pytest.mark.parametrize("unread", [(), ({},), ({"price": None},), ({"price": "?"},)])
def test_an_instance_that_could_not_be_asked_costs_what_the_others_do(unread):
    hour = record(0, nodes=("n1", "n2", "n3"), instances=({"price": "8"}, {"price": "10"}, *unread))
    ended = hour.with_end(at=3700.0, cause="finished", step_end=5)
    assert ended.cost_usd == "27.000000"
    spent = split([ended], History((), (), (), 0), (), now=9e9).cost_usd
    assert sum(map(Decimal, spent.values())) == 27


def test_progress_is_counted_per_job_by_where_attempts_begin():
    same = [record(number, step_start=40) for number in range(3)]
    assert attempts.without_progress(same, "12", 40)
    assert not attempts.without_progress(same, "12", 41)
    assert not attempts.without_progress(same[:2], "12", 40)
    assert not attempts.without_progress(same, "13", 40)
    never_began = record(3, step_start=None)
    assert attempts.without_progress([*same[1:], never_began], "12", 40)
