"""What the batch script makes of USR1 and of a restart (jobscripts/lib/signals.sh), in bash."""

import os
import subprocess
import time
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]


def said(folder, lines, *, may_fail=False, **environment):
    """What a batch script with these lines prints."""
    batch = folder / "slurm_script"
    batch.write_text(f'{lines[0]}\nsource "{REPO}/jobscripts/lib/signals.sh"\n{lines[1]}\n')
    given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12", "TOOLKIT_RUN_DIR": str(folder)}
    done = subprocess.run(
        ["bash", str(batch)],
        env=given | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=not may_fail,
    )
    return done.stdout.strip()


# The step ends only when the trap is running, which goes on until the step is gone.
ENDS_IN_THE_TRAP = """
trap 'touch go; while kill -0 "$step"; do sleep 0.01; done 2>/dev/null' USR1
{ while [[ ! -e go ]]; do sleep 0.01; done; exit CODE; } &
step=$!
{ sleep 0.1; kill -USR1 $$; } &
wait_for_step "$step"
echo "$step_code"
"""


@pytest.mark.parametrize("code", [0, 85])
def test_a_step_that_ends_while_the_signal_is_answered_keeps_its_own_code(tmp_path, code):
    lines = ("cd $TOOLKIT_RUN_DIR", ENDS_IN_THE_TRAP.replace("CODE", str(code)))
    assert said(tmp_path, lines) == str(code)


def test_a_step_that_a_signal_kills_keeps_that_code(tmp_path):
    lines = ("", 'sleep 60 & kill -TERM "$!"; wait_for_step "$!"; echo "$step_code"')
    assert said(tmp_path, lines) == "143"


def why(folder, left, *, script="#SBATCH --signal=B:USR1@90", typed=None, job="12", **environment):
    """What a signal is taken for, `left` seconds before the time limit."""
    parts = folder / "submission"
    parts.mkdir(exist_ok=True)
    (parts / "environment").write_text(f"SLURM_JOB_NAME=digits\0SLURM_JOB_ID={job}\0")
    if typed is not None:
        (parts / "submit-line").write_text(f"sbatch {typed}\n")
    ends = {"SLURM_JOB_END_TIME": str(int(time.time()) + left)}
    lines = (f"#!/bin/bash\n{script}", "SUBMITTED=(train.py --signal=A@9999); why_signalled")
    return said(folder, lines, **ends | environment)


TYPED = "{} torchrun.sbatch train.py --signal=A@9999"


@pytest.mark.parametrize(
    ("lead", "given"),
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
        (90, {"typed": TYPED.format("--signal=B:USR1@600"), "job": "11"}),  # of another job
    ],
)
def test_a_signal_is_the_time_limits_as_far_ahead_as_the_job_asked_for_it(tmp_path, lead, given):
    assert why(tmp_path, lead + 100, **given) == "time-limit"
    assert why(tmp_path, lead + 300, **given) == "preemption"


@pytest.mark.parametrize(
    ("answers", "restart", "says"),
    [
        ("echo 0", "1", "goes on"),
        ("echo 93", "1", "held"),
        ("echo 85", "1", "superseded"),
        ("echo 93; kill -TERM $PPID", "1", "held"),  # as Slurm does to a job that is requeued
        ("echo 93", "0", "goes on"),
        ("exit 1", "1", "goes on"),
        ("echo Traceback", "1", "goes on"),
    ],
)
def test_a_restart_goes_on_unless_its_budgets_are_known_to_be_used_up(
    tmp_path, answers, restart, says
):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/bash\n{answers}\n")
    python.chmod(0o755)
    ends = """trap 'case $? in 85) echo superseded ;; 93) echo held ;; esac' EXIT"""
    lines = (ends, "look_back; echo goes on")
    told = {"TOOLKIT_ENV": str(tmp_path), "SLURM_RESTART_COUNT": restart}
    assert said(tmp_path, lines, may_fail=True, **told) == says
