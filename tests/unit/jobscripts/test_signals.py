"""jobscripts/lib/signals.sh in bash: USR1, restarts and exit codes."""

import os
import subprocess
import time
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]


def output_of(folder, lines, *, may_fail=False, **environment):
    """Run a batch script with these lines and return its output."""
    batch = folder / "slurm_script"
    batch.write_text(f'{lines[0]}\nsource "{REPO}/jobscripts/lib/signals.sh"\n{lines[1]}\n')
    base_environment = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "12",
        "TOOLKIT_RUN_DIR": str(folder),
    }
    done = subprocess.run(
        ["bash", str(batch)],
        env=base_environment | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=not may_fail,
    )
    return done.stdout.strip()


# The step exits while the trap runs, and the trap returns after the step has exited.
ENDS_IN_THE_TRAP = """
trap 'touch go; while kill -0 "$step"; do sleep 0.01; done 2>/dev/null' USR1
{ while [[ ! -e go ]]; do sleep 0.01; done; exit CODE; } &
step=$!
{ sleep 0.1; kill -USR1 $$; } &
wait_for_step "$step"
echo "$step_code"
"""


@pytest.mark.parametrize("code", [0, 85])
def test_a_step_that_ends_during_the_signal_handler_keeps_its_exit_code(tmp_path, code):
    lines = ("cd $TOOLKIT_RUN_DIR", ENDS_IN_THE_TRAP.replace("CODE", str(code)))
    assert output_of(tmp_path, lines) == str(code)


def test_a_step_that_a_signal_killed_has_the_exit_code_of_the_signal(tmp_path):
    lines = ("", 'sleep 60 & kill -TERM "$!"; wait_for_step "$!"; echo "$step_code"')
    assert output_of(tmp_path, lines) == "143"


AWAY_AS_THE_SIGNAL_COMES = """
hold_stop_signal; trap_stop_signal
mv "$TOOLKIT_RUN_DIR" away
{ sleep 0.2; kill -USR1 $$; sleep 1; mv away "$TOOLKIT_RUN_DIR"; } &
{ for _ in {1..50}; do [[ ! -e "$TOOLKIT_RUN_DIR/stop.12.0.json" ]] || exit 7; sleep 0.1; done; } &
wait_for_step "$!"
echo "$step_code"
"""


def test_a_stop_request_is_written_once_the_run_folder_is_back(tmp_path):
    (tmp_path / "run").mkdir()
    environment = {
        "TOOLKIT_RUN_DIR": str(tmp_path / "run"),
        "SLURM_JOB_END_TIME": str(int(time.time())),
    }
    lines = output_of(
        tmp_path, (f"cd {tmp_path}", AWAY_AS_THE_SIGNAL_COMES), **environment
    ).splitlines()
    assert ["can't be written to" in lines[0], lines[1:]] == [
        True,
        ["[toolkit] time-limit: the workers are asked to save and stop", "7"],
    ]


def test_a_step_that_ends_while_the_run_folder_is_absent_keeps_its_exit_code(tmp_path):
    quick = "sleep() { command sleep 0.1; }"
    step = "{ command sleep 0.5; exit 7; }"
    line = f'{quick}; request_stop time-limit; {step} & wait_for_step "$!"; echo "$step_code"'
    assert output_of(tmp_path, ("", line), TOOLKIT_RUN_DIR="/nowhere").splitlines()[-1] == "7"


TRAINS = sorted(
    path for path in (REPO / "jobscripts").glob("*.sbatch") if "B:USR1" in path.read_text()
)


@pytest.mark.parametrize("script", TRAINS, ids=lambda path: path.stem)
def test_every_batch_script_holds_the_stop_signal_first(script):
    lines = script.read_text().splitlines()
    calls = [line.split()[0] for line in lines if line and line[0] not in "#[ "]
    own_calls = calls[len(calls) - calls[::-1].index("source") :]
    assert own_calls[0] == "hold_stop_signal"


def signal_cause(
    folder,
    seconds_left,
    *,
    script="#SBATCH --signal=B:USR1@90",
    typed=None,
    job="12",
    **environment,
):
    """Return the cause of a signal `seconds_left` before the time limit."""
    parts = folder / "submission"
    parts.mkdir(exist_ok=True)
    (parts / "environment").write_text(f"SLURM_JOB_NAME=digits\0SLURM_JOB_ID={job}\0")
    if typed is not None:
        (parts / "submit-line").write_text(f"sbatch {typed}\n")
    end_time = {"SLURM_JOB_END_TIME": str(int(time.time()) + seconds_left)}
    lines = (f"#!/bin/bash\n{script}", "SUBMITTED=(train.py --signal=A@9999); why_signalled")
    return output_of(folder, lines, **end_time | environment)


TYPED = "{} torchrun.sbatch train.py --signal=A@9999"


@pytest.mark.parametrize(
    ("lead", "submission"),
    [
        (90, {}),
        (90, {"script": ""}),
        (600, {"script": "#SBATCH --requeue\n#SBATCH --signal=B:USR1@600\n#SBATCH --nodes=2"}),
        (600, {"script": "#SBATCH --signal=B:10@90\n#SBATCH --signal RB:USR1@600"}),
        (60, {"script": "#SBATCH --signal=B:USR1\n#SBATCH --comment=@5"}),
        (600, {"SBATCH_SIGNAL": "B:USR1@600"}),
        (600, {"typed": TYPED.format("--nodes=1 --signal=B:USR1@600 --requeue")}),
        (600, {"typed": TYPED.format("--signal B:USR1@600"), "SBATCH_SIGNAL": "B:USR1@30"}),
        (90, {"typed": TYPED.format("--nodes=1")}),
        (90, {"typed": TYPED.format("--signal=B:USR1@600"), "job": "11"}),  # of job 11
    ],
)
def test_a_signal_at_the_requested_lead_is_the_time_limit_and_earlier_a_preemption(
    tmp_path, lead, submission
):
    assert signal_cause(tmp_path, lead + 100, **submission) == "time-limit"
    assert signal_cause(tmp_path, lead + 300, **submission) == "preemption"


@pytest.mark.parametrize(
    ("answers", "restart", "says"),
    [
        ("echo 0", "1", "goes on"),
        ("echo 93", "1", "held"),
        ("echo 85", "1", "superseded"),
        ("echo 93; kill -TERM $PPID", "1", "held"),  # Slurm sends SIGTERM to a requeued job
        ("echo 93", "0", "goes on"),
        ("exit 1", "1", "goes on"),
        ("echo Traceback", "1", "goes on"),
    ],
)
def test_a_restart_goes_on_unless_its_retry_budget_is_used_up(tmp_path, answers, restart, says):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/bash\n{answers}\n")
    python.chmod(0o755)
    exit_trap = """trap 'case $? in 85) echo superseded ;; 93) echo held ;; esac' EXIT"""
    lines = (exit_trap, "look_back; echo goes on")
    environment = {"TOOLKIT_ENV": str(tmp_path), "SLURM_RESTART_COUNT": restart}
    assert output_of(tmp_path, lines, may_fail=True, **environment) == says


def batch_exit_code(folder, answers, *, step_code=1, verdict=None, last="", **environment):
    """Return the exit code of the batch script.

    `answers` are the shell lines that stand in for the Python interpreter.
    """
    folder.joinpath("bin").mkdir()
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/bash\n{answers}\n")
    python.chmod(0o755)
    if verdict is not None:
        (folder / "verdict.12.0.json").write_text(f'{{"verdict": "x", "exit_code": {verdict}}}\n')
    code = "trap 'echo $?' EXIT"
    lines = (f"{code}\nsleep() {{ echo $1 >>$TOOLKIT_RUN_DIR/slept; command sleep 0.01; }}",)
    lines += (f"{last}\nstep_code={step_code}; exit_with_verdict",)
    script_environment = {"TOOLKIT_ENV": str(folder)} | environment
    return int(output_of(folder, lines, may_fail=True, **script_environment).splitlines()[-1])


def retry_pauses(folder):
    file = folder / "slept"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


READABLE_AT_LAST = """n=$(cat n 2>/dev/null); echo $((n + 1)) >n; ((n < 3)) || echo 42"""


def test_the_batch_script_retries_while_the_run_folder_is_unreadable(tmp_path):
    assert batch_exit_code(tmp_path, f"cd {tmp_path}; {READABLE_AT_LAST}") == 42
    assert retry_pauses(tmp_path) == [1, 1, 3]


@pytest.mark.parametrize(
    ("step_code", "verdict", "code"),
    [
        (1, None, 85),  # the next attempt's start check judges this end
        (1, 1, 85),  # failed: the end of the attempt decides on a requeue
        (0, None, 0),
        (1, 0, 0),
        (1, 93, 93),
    ],
)
def test_a_verdict_that_stays_unreadable_requeues_the_job_unless_it_is_done_or_held(
    tmp_path, step_code, verdict, code
):
    assert batch_exit_code(tmp_path, "exit 1", step_code=step_code, verdict=verdict) == code
    assert retry_pauses(tmp_path) == [1, 1, 3, 5, 10, 20, 20, 0]


HIDDEN = "mv $TOOLKIT_RUN_DIR $TOOLKIT_ENV/away; sleep() { :; }"
HELD = 'hold_attempt() { echo "$1" >$TOOLKIT_ENV/held; }'


@pytest.mark.parametrize(("restart", "code"), [("0", 85), ("1", 93)])
def test_ranks_that_exit_with_0_are_not_done_while_their_verdict_is_unreadable(
    tmp_path, restart, code
):
    """Hold the second such attempt.

    Its start check could not read the run folder either.
    """
    hiding = {"last": f"{HELD}; look_back; {HIDDEN}"}
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / f"verdict.12.{restart}.json").write_text('{"verdict": "resume", "exit_code": 85}\n')
    environment = hiding | {"TOOLKIT_RUN_DIR": str(folder), "SLURM_RESTART_COUNT": restart}
    assert batch_exit_code(tmp_path, "exit 1", step_code=0, **environment) == code
    assert (tmp_path / "held").exists() == (code == 93)


def test_a_restart_with_an_unreadable_verdict_is_not_requeued_again(tmp_path):
    restart = {"SLURM_RESTART_COUNT": "1", "last": "look_back"}
    assert batch_exit_code(tmp_path, "exit 1", step_code=7, **restart) == 7


@pytest.mark.parametrize(("verdict", "seconds_left"), [(85, 9999), (None, 15)])
def test_the_batch_script_does_not_retry_before_the_time_limit_or_after_exit_85(
    tmp_path, verdict, seconds_left
):
    limit = str(int(time.time()) + seconds_left)
    assert batch_exit_code(tmp_path, "exit 1", verdict=verdict, SLURM_JOB_END_TIME=limit) == 85
    assert retry_pauses(tmp_path) == []
