"""The audit passes a correct run and names every fault."""

import json

import pytest

from toolkit.training.recording.audit import audit, main
from toolkit.training.run_folder import steps
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.steps import Resumption, StepLog, StepRecord
from toolkit.training.sample_order import SampleOrder, fingerprint

ORDER = SampleOrder(size=25, global_batch=10, seed=3)  # three steps an epoch: 10, 10, 5


@pytest.fixture
def run(tmp_path):
    run = RunFolder(tmp_path)
    run.create()
    run.agree_order(ORDER, 2)
    return run


def records(attempt, first, last):
    for batch in ORDER.batches(step=0, position=0, epochs=2, rank=0, world_size=1):
        if first <= batch.step < last:
            prints = fingerprint(batch.ids)
            yield StepRecord(
                attempt,
                batch.step,
                batch.epoch,
                batch.start,
                batch.stop,
                len(batch.ids),
                prints,
                1.0,
            )


def write(run, *attempts):
    for number, (first, last) in enumerate(attempts):
        log = StepLog(run.steps)
        log.resume(Resumption(number, first, 0.0))
        for record in records(number, first, last):
            log.step(record)
        log.close()


def test_an_undisturbed_run_is_clean(run):
    write(run, (0, 6))
    found = audit(run.path)
    assert (found.ok, found.steps, found.samples, found.epochs_complete) == (True, 6, 50, 2)
    assert found.repeated == found.resumed_at == ()


def test_steps_that_an_attempt_still_took_beside_its_successor_do_not_count(run):
    first, second = StepLog(run.steps), StepLog(run.steps)
    first.resume(Resumption(0, 0, 0.0))
    lines = [*records(0, 0, 6)]
    for record in lines[:3]:
        first.step(record)
    second.resume(Resumption(1, 2, 0.0))
    for old, new in zip(lines[3:], records(1, 2, 5), strict=True):
        first.step(old)
        second.step(new)
    for record in records(1, 5, 6):
        second.step(record)
    for log in (first, second):
        log.close()
    found = audit(run.path)
    assert (found.ok, found.steps) == (True, 6), found.problems
    assert sorted(found.repeated) == [2, 3, 4, 5]


def test_a_start_line_that_an_attempt_writes_after_its_successors_does_not_count(run):
    write(run, (0, 2), (2, 6))
    late = StepLog(run.steps)
    late.resume(Resumption(0, 0, 0.0))
    late.close()
    found = audit(run.path)
    assert (found.ok, found.steps, found.resumed_at) == (True, 6, (2,)), found.problems


def test_a_stop_at_a_step_boundary_loses_and_repeats_nothing(run):
    write(run, (0, 4), (4, 6))
    found = audit(run.path)
    assert (found.ok, found.repeated, found.resumed_at) == (True, (), (4,))


def test_steps_after_the_last_checkpoint_of_a_killed_attempt_are_repeated_and_count_once(run):
    write(run, (0, 4), (2, 5), (3, 6))
    found = audit(run.path)
    assert (found.ok, found.steps) == (True, 6)
    assert sorted(found.repeated) == [2, 3, 3, 4]


def test_a_line_cut_short_by_a_kill_spoils_no_other(run):
    write(run, (0, 4))
    run.steps.write_bytes(run.steps.read_bytes()[:-30])
    log = StepLog(run.steps)
    log.resume(Resumption(1, 2, 0.0))
    for record in records(1, 2, 6):
        log.step(record)
    log.close()
    found = audit(run.path)
    assert (found.ok, found.steps, found.torn_lines, found.repeated) == (True, 6, 1, (2,))


def test_a_skipped_step_is_missing(run):
    write(run, (0, 2), (3, 6))
    found = audit(run.path)
    assert not found.ok
    assert found.missing == (2,)


def test_a_step_logged_twice_is_a_fault(run):
    write(run, (0, 3))
    lines = run.steps.read_bytes().splitlines(keepends=True)
    run.steps.write_bytes(b"".join([*lines, lines[-1]]))
    found = audit(run.path)
    assert not found.ok
    assert found.duplicated == (2,)


@pytest.mark.parametrize("change", [{"fingerprint": 1}, {"samples": 9}, {"stop": 11}])
def test_samples_that_the_ranks_did_not_take_are_a_fault(run, change):
    write(run, (0, 6))
    lines = [json.loads(line) for line in run.steps.read_bytes().splitlines()]
    lines[1] |= change
    run.steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert not audit(run.path).ok


def test_the_command_says_it_in_json_and_in_its_exit_code(run, capsys):
    write(run, (0, 6))
    assert main([str(run.path), "--steps", "6"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert main([str(run.path), "--steps", "7"]) == 1
    assert "6 steps, not 7" in json.loads(capsys.readouterr().out)["problems"][0]
    assert main([str(run.path / "absent")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_missing_step_log_has_no_history(tmp_path):
    assert steps.read(tmp_path / "none").steps == ()
