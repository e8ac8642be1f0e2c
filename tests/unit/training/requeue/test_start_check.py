"""The start check of a restart, and its attempts file."""

import itertools
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.fakes.own_job import FakeScontrol
from toolkit.training.checkpoint import manifest
from toolkit.training.requeue.end_of_attempt import EndOfAttempt
from toolkit.training.requeue.start_check import StartCheck
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.run_folder.steps import StepLog, StepRecord
from toolkit.training.slurm.job import SlurmJob

NOW = 2_000_000_000.0
HOUR = 3600.0


def record(number, cause="running", **more):
    """Return an attempt of an hour that trained one step.

    Its cause stays "running" if it died.
    """
    over, later = cause != "running", 60 * number
    begun = AttemptRecord(
        attempt=number, job_id="12", restart_count=number, started_at=NOW - HOUR + later,
        ended_at=None, seconds=None, cause="running", step_start=number, step_end=None,
        world_size=1, nodes=("gpu-001",), instances=({"instance_id": "i-1", "price": "2.00"},),
        cost_usd=None,
    )  # fmt: skip
    begun = begun.with_end(at=NOW + later, cause=cause, step_end=number + 1) if over else begun
    return replace(begun, **{"rule": "told@5" if over else "", **more})


def row(number, state, end=""):
    """Return accounting's line about that attempt.

    Slurm started the attempt before its batch script began.
    """
    return f"12|{state}|{NOW - HOUR + 60 * number - 8:.0f}|{end and format(end, '.0f')}\n"


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    RunFolder(folder).create()
    return folder


@pytest.fixture
def attempts_file(run_dir):
    return AttemptsFile(run_dir / "attempts.jsonl")


@pytest.fixture
def look(attempt_of, run_dir):
    """A function that runs the start check of a restart."""

    def look(restart, *, scontrol=None, cap="", log=""):
        (run_dir / "job.log").write_text(log)
        said = {"TOOLKIT_LOG": str(run_dir / "job.log"), "TOOLKIT_MAX_USD": cap}
        job = SlurmJob("12", scontrol or FakeScontrol(), sleep=lambda _: None)
        return StartCheck(attempt_of(restart), job, said, clock=lambda: NOW + 60).check()

    return look


@pytest.fixture
def end(attempt_of, run_dir):
    """A function that lets a restart end with exit code 1."""

    def end(restart, *, scontrol, log):
        (run_dir / "job.log").write_text(log)
        said = {"TOOLKIT_LOG": str(run_dir / "job.log")}
        job = SlurmJob("12", scontrol)
        return EndOfAttempt(attempt_of(restart), job, said, clock=lambda: NOW).judge(1)

    return end


@pytest.fixture
def begun(look, run_dir, attempts_file):
    """A function that begins the attempt after these.

    The earlier attempts saved all steps that they trained.
    """

    def begin(*records, saved=None, **more):
        for one in records:
            attempts_file.append(one)
        every = attempts_file.attempts()
        restart = every[-1].restart_count + 1 if every else 1
        steps = StepLog(run_dir / "steps.jsonl")
        steps.step(StepRecord(restart - 1, restart, 0, 0, 8, 8, 0, NOW))
        steps.close()
        saved = restart if saved is None else saved
        folder = run_dir / "checkpoints" / f"step-{saved:08d}.{restart:06d}"
        folder.mkdir(parents=True)
        manifest.commit(folder, [], {"step": saved})
        return look(restart, **more)

    return begin


def test_a_job_whose_node_died_with_its_dollars_spent_is_held_before_its_workers_begin(
    begun, attempts_file
):
    scontrol = FakeScontrol(comment="mine")
    outcome = begun(record(0), cap="1.99", scontrol=scontrol)
    assert (outcome.code, scontrol.done) == (93, ["requeuehold 12"])
    assert "job 12 is held: $2.00 spent, $1.99 allowed" in outcome.log_lines[1]
    assert scontrol.job["comment"].startswith("mine | toolkit: held: $2.00 spent, $1.99 allowed")
    assert scontrol.job["comment"].endswith("to go on: scontrol release 12")
    assert [(one.cause, one.held) for one in attempts_file.attempts()] == [
        ("lost", False),
        ("held", True),
    ]


@pytest.mark.parametrize("cause", ["running", "lost", "terminated"])
def test_what_a_lost_attempt_costs_is_never_less_than_its_time_in_accounting(
    begun, attempts_file, cause
):
    ended = FakeScontrol(accounting=row(0, "NODE_FAIL", NOW + HOUR / 2) + row(99, "RUNNING"))
    assert begun(record(0, cause, rule=""), cap="2.99", scontrol=ended).code == 93
    assert attempts_file.attempts()[0].cost_usd == "3.000000"


def test_an_attempt_that_accounting_saw_end_before_its_last_step_costs_until_that(
    begun, attempts_file
):
    ended = FakeScontrol(accounting=row(0, "NODE_FAIL", NOW - 9))
    assert begun(record(0), scontrol=ended).code == 0
    assert attempts_file.attempts()[0].cost_usd == "2.000000"


@pytest.mark.parametrize(
    "left", ["run/verdict.12.0", "run/stop.12.0", "stop/12.0", "run/gpus/12.0.gpu-001"]
)
def test_without_accounting_a_lost_attempt_costs_until_its_last_sign_of_life(
    begun, attempts_file, tmp_path, left
):
    sign = tmp_path / f"{left}.json"
    sign.parent.mkdir(exist_ok=True)
    sign.write_text("{}")
    os.utime(sign, (NOW + HOUR / 2,) * 2)
    begun(record(0))
    assert attempts_file.attempts()[0].cost_usd == "3.000000"


@pytest.mark.parametrize("cap", ["2.01", "", "two"])
def test_a_job_whose_node_died_goes_on_while_there_is_money_or_no_cap(begun, attempts_file, cap):
    outcome = begun(record(0), cap=cap)
    assert (outcome.code, outcome.log_lines) == (0, ("attempt 0 (job 12) ended without a verdict",))
    assert [one.cause for one in attempts_file.attempts()] == ["lost", "running"]


def test_a_job_that_its_owner_releases_runs_its_next_attempt_and_no_more(begun, attempts_file):
    assert begun(record(0), cap="1").code == 93
    assert begun(cap="1").code == 0
    attempts_file.replace_last(
        replace(attempts_file.attempts()[-1], world_size=1)
    )  # its workers began and then died
    assert begun(cap="1").code == 93


def test_a_job_under_which_twenty_one_nodes_died_in_a_day_is_held(begun):
    died = [record(number, "lost", rule="") for number in range(20)]
    outcome = begun(*died, record(20))
    assert outcome.code == 93
    assert "21 in 24 h, 20 allowed: node-failure" in outcome.log_lines[1]


def test_a_job_under_which_twenty_nodes_died_goes_on(begun):
    died = [record(number, "lost", rule="") for number in range(19)]
    assert begun(*died, record(19)).code == 0


def test_nodes_that_die_before_the_workers_come_are_counted(begun, attempts_file):
    codes = [begun(record(0), saved=0).code, *(begun(saved=0).code for _ in range(3))]
    assert codes == [0, 0, 93, 0]
    assert [one.cause for one in attempts_file.attempts()] == [
        "lost",
        "lost",
        "lost",
        "held",
        "running",
    ]


def test_a_job_that_got_nowhere_three_times_is_held_whoever_brought_it_back(begun):
    stuck = [record(number, "error", step_start=7) for number in range(3)]
    outcome = begun(*stuck, saved=7)
    assert outcome.code == 93
    assert (
        "3 attempts began at step 7 and got no further: the last ended by error"
        in (outcome.log_lines[0])
    )


@pytest.mark.parametrize("step_start", [None, 0])
def test_no_progress_holds_no_job_whose_steps_nobody_counts(begun, run_dir, step_start):
    (run_dir / "run.json").unlink()
    taken = [record(number, "spot-interruption", step_start=step_start) for number in range(9)]
    assert begun(*taken, saved=0).code == 0


def test_a_job_that_failed_with_its_dollars_spent_is_held_when_the_head_brings_it_back(begun):
    assert begun(record(0, "error"), cap="1").code == 93


@pytest.mark.parametrize("cause", ["error", "cancelled", "out-of-memory"])
def test_a_person_may_bring_a_failed_job_back(begun, cause):
    assert begun(record(0, cause), record(1, cause), cap="100").code == 0


@pytest.mark.parametrize("state", ["CANCELLED by 1001", "OUT_OF_MEMORY", "FAILED"])
def test_a_person_may_bring_back_a_job_whose_script_slurm_ended(begun, state):
    ended = [record(number, "lost", rule="") for number in range(2)]
    scontrol = FakeScontrol(accounting="".join(row(n, state) for n in range(3)))
    assert begun(*ended, record(2), scontrol=scontrol).code == 0


REQUEUE = "slurmstepd: error: *** JOB 12 ON n CANCELLED AT x DUE TO JOB REQUEUE ***"


@pytest.mark.parametrize("left", ["terminated", "lost"])
@pytest.mark.parametrize(
    ("state", "said"), [("REQUEUED", "connection reset"), ("", f"{REQUEUE}\nconnection reset")]
)
def test_requeueing_a_running_job_by_hand_is_no_failure_of_it(
    begun, attempts_file, left, state, said
):
    gone = [record(number, left, rule="", step_start=0) for number in range(30)]
    states = "".join(row(number, state) for number in range(30) if state)
    log = "".join(f"[toolkit] job 12, restart {number}, run\n{said}\n" for number in range(30))
    requeued = FakeScontrol(accounting=states)
    assert begun(*gone, scontrol=requeued, log=log, saved=0).code == 0
    assert {one.cause for one in attempts_file.attempts()[:-1]} == {"requeued"}


def test_peers_that_were_lost_again_and_again_are_a_reason_to_hold(begun):
    gone = [record(number, "terminated", rule="") for number in range(9)]
    log = "".join(
        f"[toolkit] job 12, restart {number}, run\nconnection reset\n" for number in range(9)
    )
    outcome = begun(*gone, log=log)
    assert outcome.code == 93
    assert "9 in 24 h, 5 allowed: transient" in outcome.log_lines[0]


class Killed(BaseException):
    """A kill, which no code handles."""


@pytest.fixture
def killed_at(monkeypatch):
    """A context in which the n-th call is killed.

    Writes of the attempts file and calls of scontrol count.
    """

    @contextmanager
    def at(n, scontrol):
        before, write = itertools.count(n, -1), AttemptsFile._write_all

        def tick():
            if next(before) == 0:
                raise Killed

        def writing(attempts_file, attempts):
            tick()
            write(attempts_file, attempts)

        with monkeypatch.context() as patched:
            patched.setattr(AttemptsFile, "_write_all", writing)
            patched.setattr(scontrol, "before", tick)
            with pytest.raises(Killed):
                yield

    return at


RESET = "[toolkit] job 12, restart 5, run\nconnection reset\n"


@pytest.mark.parametrize("n", range(8))
def test_a_look_that_is_killed_at_any_of_its_calls_leaves_the_budgets_as_they_were(
    look, attempts_file, killed_at, n
):
    for number in range(5):
        attempts_file.append(record(number, "transient"))
    attempts_file.append(record(5, "terminated", rule=""))
    scontrol = FakeScontrol()
    with killed_at(n, scontrol):
        look(6, scontrol=scontrol, log=RESET)
    assert look(7, scontrol=scontrol, log=RESET).code == 93
    assert look(8, scontrol=scontrol, log=RESET).code == 0, "a person let it go"


@pytest.mark.parametrize("n", range(6))
def test_an_end_that_is_killed_at_any_of_its_calls_leaves_the_budgets_as_they_were(
    look, end, attempts_file, killed_at, n
):
    for number in range(5):
        attempts_file.append(record(number, "transient"))
    attempts_file.append(record(5))
    scontrol = FakeScontrol()
    with killed_at(n, scontrol):
        end(5, scontrol=scontrol, log=RESET)
    assert look(6, scontrol=scontrol, log=RESET).code == 93
    assert look(7, scontrol=scontrol, log=RESET).code == 0, "a person let it go"


def test_a_finished_run_may_begin_whatever_it_cost(begun):
    assert begun(record(0, "finished"), cap="1").code == 0


def test_a_job_that_left_nothing_begins(begun, attempts_file):
    assert begun(cap="1").code == 0
    (only,) = attempts_file.attempts()
    assert (only.key, only.cause, only.world_size) == ("12.1", "running", 0)


def test_the_dollars_of_a_run_are_those_of_all_its_jobs(begun):
    scontrol = FakeScontrol()
    assert begun(record(0, "time-limit", job_id="11"), cap="1", scontrol=scontrol).code == 93
    assert begun(cap="1", scontrol=scontrol).code == 0


def test_where_slurm_does_not_answer_the_budgets_hold_all_the_same(begun):
    assert begun(record(0), cap="9", scontrol=FakeScontrol(deaf=True)).code == 0
    outcome = begun(record(2), cap="1", scontrol=FakeScontrol(deaf=True))
    assert (outcome.code, outcome.log_lines[-1]) == (93, "Slurm did not hold job 12: it ends now")


def test_what_the_batch_script_waits_for_loads_no_torch():
    loaded = "import sys, toolkit.training.requeue.start_check; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
