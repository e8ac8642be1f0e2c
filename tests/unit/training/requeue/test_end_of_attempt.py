"""The end of an attempt: cause, requeue and exit code."""

import errno
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.fakes.checkpoint_disk import CALLS, fail, strike
from tests.fakes.own_job import FakeScontrol
from tests.fakes.scontrol import NO_JOBS
from toolkit.training.attempt import verdict
from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint import manifest
from toolkit.training.io import durable_files
from toolkit.training.io.durable_files import write_json
from toolkit.training.requeue.end_of_attempt import EndOfAttempt, JobOutcome
from toolkit.training.run_folder import checkpoint_names
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile, without_progress
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.slurm.job import SlurmJob
from toolkit.training.sweeps import trial_file
from toolkit.training.tracking import mlflow

NOW = 2_000_000_000.0
KEYERROR = "[rank0]: KeyError: 'x'\n"
NCCL = "[rank0]: ncclRemoteError: A call failed possibly due to a network error\n"


@pytest.fixture
def ended(attempt_of, tmp_path):
    def run(code, *, log="", restart=0, scontrol=None, word=None, counted=True, **environment):
        attempt = attempt_of(restart)
        attempt.run_dir.mkdir(parents=True, exist_ok=True)
        if counted:
            RunFolder(attempt.run_dir).create()
        attempt.stop_dir.mkdir(exist_ok=True)
        if word:
            word.write(attempt.verdict_file)
        path = tmp_path / "job.log"
        with path.open("a") as stream:
            stream.write(f"[toolkit] job 12, restart {restart}, run folder x\n{log}")
        ending = EndOfAttempt(
            attempt,
            SlurmJob("12", scontrol or FakeScontrol(), sleep=lambda _: None),
            {"TOOLKIT_LOG": str(path), **environment},
            clock=lambda: NOW,
            chance=lambda: 0.5,
        )
        return ending.judge(code)

    return run


def attempts(tmp_path):
    return AttemptsFile(tmp_path / "run" / "attempts.jsonl").attempts()


def test_an_attempt_that_never_reached_its_loop_is_in_the_attempts_file_too(ended, tmp_path):
    outcome = ended(1, log="[rank0]: ModuleNotFoundError: No module named 'x'\n")
    assert outcome.code == 1
    (only,) = attempts(tmp_path)
    assert (only.cause, only.rule.split("@")[0]) == ("error", "cannot-start")
    assert only.detail == "[rank0]: ModuleNotFoundError: No module named 'x'"


def test_the_log_of_an_earlier_attempt_is_not_held_against_this_one(ended):
    assert ended(1, log=KEYERROR).code == 1
    assert ended(1, log=NCCL, restart=1).code == 85


def test_a_transient_failure_waits_in_slurms_queue(ended):
    scontrol = FakeScontrol(comment="mine")
    outcome = ended(1, log=NCCL, scontrol=scontrol)
    assert outcome.code == 85
    assert scontrol.done[0] == "requeue 12"
    assert scontrol.done[1].startswith("update jobid=12 StartTime=2033-05-1")
    assert scontrol.job["comment"].startswith("mine | toolkit: transient (nccl: ")


@pytest.mark.parametrize(
    ("code", "log", "word", "status"),
    [
        (1, KEYERROR, None, "FAILED"),
        (1, KEYERROR, verdict.failed(9, "KeyError: 'x'"), "FAILED"),
        (1, NCCL, verdict.failed(9, "RuntimeError"), None),  # the job is requeued with a wait
        (1, "MemoryError\n", verdict.failed(9, "MemoryError"), None),  # the job is requeued once
        (1, "", verdict.hold(9, "no-progress", "stuck"), None),  # held: in the queue
        (1, "", verdict.resume(9, "spot-interruption"), None),
        (0, "", verdict.done(9), None),  # the workers have recorded the end
    ],
)
def test_the_run_is_over_only_where_its_job_does_not_come_back(ended, code, log, word, status):
    assert ended(code, log=log, word=word).status == status


def test_a_finished_run_whose_records_were_kept_is_reported_by_the_batch_script(ended, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tracking-backlog.json").write_text("{}")
    assert ended(0, word=verdict.done(9)).status == "FINISHED"


def test_the_run_of_a_cancelled_job_is_killed_and_not_failed(ended):
    scontrol = FakeScontrol()
    scontrol.job["job_state"] = ["CANCELLED", "COMPLETING"]
    assert ended(143, log=KEYERROR, scontrol=scontrol).status == "KILLED"


def test_the_run_of_a_job_that_slurm_does_not_hold_is_over(ended):
    word = verdict.hold(9, "no-progress", "stuck")
    outcome = ended(1, word=word, scontrol=FakeScontrol(deaf=True))
    assert (outcome.code, outcome.status) == (93, "FAILED")


@pytest.mark.parametrize("silent", [1, 3, 6])
def test_a_job_is_held_with_its_reason_though_slurmctld_misses_the_first_questions(
    attempt_of, silent
):
    attempt, slept = attempt_of(0), []
    attempt.run_dir.mkdir()
    scontrol = FakeScontrol(comment="mine", deaf=True)

    def sleep(seconds):
        slept.append(seconds)
        scontrol.deaf = len(slept) < silent

    verdict.hold(9, "no-progress", "stuck").write(attempt.verdict_file)
    outcome = EndOfAttempt(attempt, SlurmJob("12", scontrol, sleep=sleep), {}).judge(1)
    assert (outcome.code, outcome.status, scontrol.done) == (93, None, ["requeuehold 12"])
    assert scontrol.job["comment"].startswith("mine | toolkit: held: no-progress: stuck")
    assert len(slept) == silent


@pytest.mark.parametrize("slow", [("show",), ("update",), ("show", "update")])
def test_a_job_is_held_though_its_reason_can_not_be_noted(ended, slow):
    word = verdict.hold(9, "no-progress", "stuck")
    scontrol = FakeScontrol(comment="mine", slow=slow)
    outcome = ended(1, word=word, scontrol=scontrol)
    assert (outcome.code, outcome.status, scontrol.done) == (93, None, ["requeuehold 12"])
    assert scontrol.job["comment"] == "mine"


def test_a_spot_notice_requeues_the_job_by_its_exit_code_alone(ended):
    scontrol = FakeScontrol()
    outcome = ended(1, word=verdict.resume(7, "spot-interruption"), scontrol=scontrol)
    assert (outcome.code, scontrol.done) == (85, [])


def test_a_job_that_gets_nowhere_is_held_with_its_reason_and_how_to_go_on(ended):
    for restart in range(2):
        assert ended(1, log=NCCL, restart=restart).code == 85
    scontrol = FakeScontrol(comment="mine toolkit:checkpoint=17")
    outcome = ended(1, log=NCCL, restart=2, scontrol=scontrol)
    assert "3 attempts began at step 0 and got no further" in outcome.log_lines[1]
    assert (outcome.code, scontrol.done) == (93, ["requeuehold 12"])
    comment = scontrol.job["comment"]
    assert comment.startswith("mine | toolkit: held: ")
    assert comment.endswith("to go on: scontrol release 12 toolkit:checkpoint=17")


@pytest.mark.parametrize("answer", ["Unexpected message received", NO_JOBS])
@pytest.mark.parametrize(("log", "runs"), [(NCCL, 1), (KEYERROR, 1), (NCCL, 3)])
def test_a_persons_comment_stays_when_it_could_not_be_read(ended, log, runs, answer):
    scontrol = FakeScontrol(comment="mine", garbled=answer)
    for restart in range(runs):
        ended(1, log=log, restart=restart, scontrol=scontrol)
    assert scontrol.job["comment"] == "mine"
    assert ("requeuehold 12" in scontrol.done) == (runs == 3), "held all the same"


def test_a_job_that_was_held_and_released_starts_with_a_new_budget(ended, tmp_path):
    codes = [ended(1, log=NCCL, restart=restart).code for restart in range(6)]
    assert codes == [85, 85, 93, 85, 85, 93]
    assert [one.held for one in attempts(tmp_path)] == [False, False, True] * 2
    assert not without_progress(attempts(tmp_path), "12", 0), "its next attempt begins"


def test_no_progress_holds_no_job_whose_steps_nobody_counts(ended):
    word = verdict.resume(0, "spot-interruption")
    codes = [ended(1, word=word, restart=restart, counted=False).code for restart in range(9)]
    assert codes == [85] * 9


def test_what_the_workers_hold_is_held(ended, tmp_path):
    scontrol = FakeScontrol()
    word = verdict.hold(40, "no-progress", "three attempts began at step 40")
    assert ended(1, word=word, scontrol=scontrol).code == 93
    assert scontrol.done == ["requeuehold 12"]
    assert attempts(tmp_path)[-1].cause == "no-progress"


@pytest.mark.parametrize(("told", "saved", "reached"), [(40, None, 40), (40, 30, 40), (40, 50, 50)])
def test_an_attempt_without_workers_in_the_attempts_file_reached_what_they_said_or_saved(
    ended, tmp_path, told, saved, reached
):
    """Take the later step of the verdict and the last checkpoint.

    A save may be committed without its attempt knowing. A verdict may name a checkpoint that is
    gone.
    """
    if saved is not None:
        folder = tmp_path / "run" / "checkpoints" / f"step-{saved:08}.000001"
        folder.mkdir(parents=True)
        (folder / checkpoint_names.COMMITTED).write_text("{}")
    ended(1, word=verdict.resume(told, "spot-interruption"))
    assert attempts(tmp_path)[-1].step_end == reached


def test_a_cancelled_job_is_not_brought_back_by_what_its_workers_said(ended):
    scontrol = FakeScontrol()
    scontrol.job["job_state"] = ["CANCELLED", "COMPLETING"]
    outcome = ended(143, word=verdict.resume(7, "terminated"), log=NCCL, scontrol=scontrol)
    assert (outcome.code, scontrol.done) == (143, [])


def test_a_node_that_slurm_has_lost_explains_the_others_errors(ended, tmp_path):
    nodes = [{"name": "gpu-002", "state": ["DOWN", "CLOUD"], "reason": "toolkit: interrupted (x)"}]
    assert ended(1, log=NCCL, scontrol=FakeScontrol(nodes=nodes)).code == 85
    assert attempts(tmp_path)[-1].cause == "spot-interruption"


@pytest.mark.parametrize(
    ("log", "word", "code"),
    [
        (NCCL, None, 85),
        (KEYERROR, None, 1),
        ("", verdict.resume(3, "spot-interruption"), 85),
        ("", verdict.done(9), 0),
        ("", verdict.failed(9, "ValueError: x", 4), 4),
    ],
)
def test_without_slurms_answer_the_exit_code_still_says_it(ended, log, word, code):
    scontrol = FakeScontrol(deaf=True)
    assert ended(1, log=log, word=word, scontrol=scontrol).code == code
    assert scontrol.asked == 1, "a notice leaves no time to wait for it again"


def test_a_script_without_a_verdict_that_ends_well_is_done_whatever_it_complained_of(ended):
    assert ended(0, log=NCCL).code == 0


TAKEN = [{"name": "gpu-001", "state": ["DRAIN"], "reason": "toolkit: spot interruption (x)"}]


@pytest.mark.parametrize("cause", ["time-limit", "spot-interruption", "preemption"])
def test_a_script_in_which_no_run_ever_was_is_done_when_it_ends_well_whoever_asked_for_a_stop(
    ended, attempt_of, cause
):
    stop = attempt_of(0).stop_files[0]
    stop.parent.mkdir()
    write_json(stop, {"cause": cause})
    assert ended(0, counted=False, scontrol=FakeScontrol(nodes=TAKEN)).code == 0
    assert ended(1, counted=False, scontrol=FakeScontrol(nodes=TAKEN)).code == 85
    assert ended(0, scontrol=FakeScontrol(nodes=TAKEN)).code == 85, "a Run says when it is done"


@pytest.mark.parametrize("code", [85, 93])
def test_a_scripts_own_85_asks_slurm_for_nothing(ended, code):
    assert ended(code, log=KEYERROR).code == 1


def test_an_attempt_that_was_taken_before_it_could_say_so_is_no_failure_of_its_node(
    ended, tmp_path, attempt_of
):
    ended(1)
    attempts_file = AttemptsFile(tmp_path / "run" / "attempts.jsonl")
    (first,) = attempts_file.attempts()
    for asked, cause in ((None, "lost"), ("unheard-of", "lost"), ("spot-interruption",) * 2):
        attempts_file.replace_last(replace(first, cause="lost", rule=""))
        if asked:
            write_json(attempt_of(0).stop_files[0], {"cause": asked})
        ended(1, word=verdict.resume(3, "time-limit"), restart=1)
        assert attempts_file.attempts()[0].cause == cause
        attempts_file._write_all(attempts_file.attempts()[:1])


@pytest.mark.parametrize(
    ("accounting", "cause"),
    [
        (
            f"12|NODE_FAIL|{NOW - 900:.0f}|{NOW + 9:.0f}\n12|RUNNING|{NOW + 20:.0f}\n",
            "node-failure",
        ),
        (f"12|PREEMPTED|{NOW - 900:.0f}\n12|RUNNING|{NOW + 20:.0f}\n", "preemption"),
        (f"12|NODE_FAIL|{NOW + 2:.0f}\n", "node-failure"),  # by its node's clock
        (f"12|NODE_FAIL|{NOW - 90:.0f}|{NOW - 9:.0f}\n12|NODE_FAIL|{NOW + 9:.0f}\n", "lost"),
        (f"11|NODE_FAIL|{NOW - 900:.0f}\n12|NODE_FAIL|Unknown\n", "lost"),
        ("sacct: error: Invalid field requested\n", "lost"),
    ],
)
def test_an_attempt_whose_first_node_went_is_told_by_accounting(ended, tmp_path, accounting, cause):
    ended(1)
    attempts_file = AttemptsFile(tmp_path / "run" / "attempts.jsonl")
    attempts_file.replace_last(replace(attempts_file.attempts()[0], cause="lost", rule=""))
    ended(0, restart=1, word=verdict.done(9), scontrol=FakeScontrol(accounting=accounting))
    assert attempts_file.attempts()[0].cause == cause


NODE_FAILURE = (
    "slurmstepd: error: *** JOB 12 ON n CANCELLED AT … DUE TO NODE FAILURE, SEE LOG ***\n"
)


@pytest.mark.parametrize(("log", "cause"), [(NCCL + NODE_FAILURE, "node-failure"), ("", "lost")])
def test_an_attempt_whose_script_slurm_ended_first_is_told_by_its_part_of_the_log(
    ended, tmp_path, log, cause
):
    ended(1, log=log)
    attempts_file = AttemptsFile(tmp_path / "run" / "attempts.jsonl")
    attempts_file.replace_last(replace(attempts_file.attempts()[0], cause="lost", rule=""))
    ended(0, log=KEYERROR + NODE_FAILURE, restart=1, word=verdict.done(9))
    assert [attempt.cause for attempt in attempts_file.attempts()] == [cause, "finished"]


def test_what_the_workers_said_tells_an_attempt_when_nothing_else_does(ended, tmp_path, attempt_of):
    ended(1)
    attempts_file = AttemptsFile(tmp_path / "run" / "attempts.jsonl")
    attempts_file.replace_last(replace(attempts_file.attempts()[0], cause="peer-lost", rule=""))
    verdict.resume(3, "peer-lost").write(attempt_of(0).verdict_file)
    ended(0, restart=1, word=verdict.done(9))
    assert attempts_file.attempts()[0].cause == "transient"


def under_way(tmp_path, *, restart=0, usd=None):
    """Write an attempt that began an hour ago, at step 0.

    `usd` is the price of its instance for an hour.
    """
    begun = AttemptRecord(
        attempt=restart,
        job_id="12",
        restart_count=restart,
        started_at=NOW - 3600,
        ended_at=None,
        seconds=None,
        cause="running",
        step_start=0,
        step_end=None,
        world_size=1,
        nodes=("gpu-001",),
        instances=({"instance_id": "i-1", "price": usd},) if usd else (),
        cost_usd=None,
    )
    (tmp_path / "run").mkdir(exist_ok=True)
    AttemptsFile(tmp_path / "run" / "attempts.jsonl").append(begun)


@pytest.mark.parametrize(("cap", "code"), [("1.99", 93), ("$1.99", 93), ("2.01", 85), ("", 85)])
def test_a_job_that_has_spent_its_dollars_is_held(ended, tmp_path, cap, code):
    under_way(tmp_path, usd="2.00")
    word = verdict.resume(3, "spot-interruption")
    assert ended(1, word=word, TOOLKIT_MAX_USD=cap).code == code


@pytest.mark.parametrize("cap", ["0.01", "two hundred", "200,50", "NaN"])
def test_a_dollar_cap_that_can_not_be_kept_is_logged(ended, cap):
    outcome = ended(1, word=verdict.resume(3, "spot-interruption"), TOOLKIT_MAX_USD=cap)
    assert outcome.code == 85
    assert "TOOLKIT_MAX_USD" in outcome.log_lines[-1]
    assert "has no effect" in outcome.log_lines[-1]


def test_an_attempt_that_died_without_a_word_is_judged_by_what_it_saved(ended, tmp_path):
    for restart in range(2):
        ended(1, log=NCCL, restart=restart)
    under_way(tmp_path, restart=2)
    for name, steps in (("step-00000400.000007", 400), ("step-00000300.000008", 300)):
        folder = tmp_path / "run" / "checkpoints" / name
        folder.mkdir(parents=True)
        manifest.commit(folder, [], {"step": steps})
    assert ended(1, log=NCCL, restart=2).code == 85
    assert attempts(tmp_path)[-1].step_end == 300  # this one was saved last


def test_a_stop_that_was_asked_in_unknown_words_requeues_the_job(ended, tmp_path):
    outcome = ended(0, word=verdict.resume(3, "unreadable-request"))
    assert outcome.code == 85
    assert attempts(tmp_path)[-1].cause == "preemption"


@pytest.fixture
def owned(attempt_of, tmp_path):
    """A function that makes ends of attempts.

    Each attempt failed with an error of the filesystem.
    """

    def end(number, told_by="log"):
        attempt = attempt_of(0)
        run_dir = tmp_path / f"run-{number}"
        place = run_dir / "checkpoints" / "owner" / "12.0.-.aa"
        place.mkdir(parents=True)
        RunFolder(run_dir).create()
        attempt = replace(attempt, run_dir=run_dir, fence=Fence(place))
        if told_by == "verdict":
            verdict.failed(9, EIO).write(attempt.verdict_file)
        log = tmp_path / "job.log"
        said = f"[rank0]: {EIO}\n" if told_by == "log" else ""
        log.write_text(f"[toolkit] job 12, restart 0, run folder x\n{said}")
        given = {"TOOLKIT_LOG": str(log)}
        return EndOfAttempt(attempt, SlurmJob("12", FakeScontrol()), given, chance=lambda: 0.5)

    return end


EIO = "OSError: [Errno 5] Input/output error"


@pytest.mark.parametrize("told_by", ["log", "verdict"])
def test_an_error_of_any_one_operation_keeps_no_transient_failure_from_coming_back(
    owned, tmp_path, told_by
):
    number = 0
    while True:
        number += 1
        ending = owned(number, told_by)
        with strike(number, fail, CALLS) as met:
            try:
                code = ending.judge(1).code
            except OSError:  # the batch script tries again
                code = ending.judge(1).code
        assert code == 85, f"operation {number}"
        (only,) = AttemptsFile(tmp_path / f"run-{number}" / "attempts.jsonl").attempts()
        assert only.cause == "transient", f"operation {number}"
        if len(met) < number:
            break
    assert number > 10


def test_the_batch_script_hears_the_exit_code_and_nothing_else(attempt_of, monkeypatch, capsys):
    """Print only the exit code to standard output.

    MLflow's client prints the address of a run when it ends the run over HTTP.
    """
    monkeypatch.setattr(mlflow, "end_mlflow_run", lambda *_: sys.stdout.write("View run\n"))
    monkeypatch.setattr(trial_file, "end_trial", lambda *_: sys.stdout.write("told\n"))
    JobOutcome(1, ("why",), "FAILED").conclude(attempt_of())
    out, err = capsys.readouterr()
    assert out == "1\n"
    assert err == "[toolkit] why\nView run\ntold\n"


def test_the_trial_of_a_finished_run_is_left_to_its_workers(attempt_of, monkeypatch):
    calls = []
    monkeypatch.setattr(mlflow, "end_mlflow_run", lambda *_: calls.append("run"))
    monkeypatch.setattr(trial_file, "end_trial", lambda *_: calls.append("trial"))
    JobOutcome(0, (), "FINISHED").conclude(attempt_of())
    assert calls == ["run"]


def unreadable(monkeypatch, file):
    """Fail every open of one file, as if its server were away."""
    original = type(file).open

    def opened(self, *given, **named):
        if self == file:
            raise OSError(errno.EIO, "Input/output error")
        return original(self, *given, **named)

    monkeypatch.setattr(type(file), "open", opened)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("word", [verdict.resume(9, "maintenance"), verdict.hold(9, "x", "y")])
@pytest.mark.parametrize("hidden", ["verdict", "stop", "run"])
def test_an_attempt_that_said_that_it_is_not_done_is_no_success_while_a_file_cant_be_read(
    attempt_of, monkeypatch, word, counted, hidden
):
    """Exit with the verdict's code, although the workers exited with 0.

    Workers that stop together exit with 0.
    """
    attempt = attempt_of()
    attempt.run_dir.mkdir()
    attempt.stop_dir.mkdir()
    if counted:
        RunFolder(attempt.run_dir).create()
    write_json(attempt.stop_files[0], {"cause": "spot-interruption", "at": NOW})
    word.write(attempt.verdict_file)
    files = {"verdict": attempt.verdict_file, "stop": attempt.stop_files[0]}
    ending = EndOfAttempt(attempt, SlurmJob("12", FakeScontrol(), sleep=lambda _: None), {})
    with monkeypatch.context() as patch:
        unreadable(patch, files.get(hidden, attempt.run_dir / "run.json"))
        with suppress(OSError):  # the batch script tries again
            assert ending.judge(0).code == word.exit_code
    assert ending.judge(0).code == word.exit_code


def test_a_filesystem_that_goes_away_for_long_at_any_operation_ends_no_job(owned, monkeypatch):
    number = met = 0
    while met >= number:
        number, met = number + 1, 0
        ending = owned(number)

        def guard(original, number=number):
            def call(*args, **kwargs):
                nonlocal met
                met += 1
                return fail() if met >= number else original(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for owner, name in CALLS:
                patch.setattr(owner, name, guard(getattr(owner, name)))
            try:
                code = ending.judge(1).code
            except OSError:
                code = None
        assert code in {85, None}, f"from operation {number}"
        assert ending.judge(1).code == 85


def test_a_full_disk_under_the_attempts_file_requeues_the_job_and_is_logged(owned, monkeypatch):
    def full(path, _content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    ending = owned(0)
    monkeypatch.setattr(durable_files, "_write_temporary", full)
    outcome = ending.judge(1)
    assert outcome.code == 85
    assert any("attempts.jsonl can't be written" in line for line in outcome.log_lines)
