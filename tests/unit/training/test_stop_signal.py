"""What the batch script makes of USR1 (jobscripts/lib/signals.sh), as bash runs it."""

import os
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]


def said(folder, lines, **environment):
    """What a batch script with these lines prints."""
    batch = folder / "slurm_script"
    batch.write_text(f'{lines[0]}\nsource "{REPO}/jobscripts/lib/signals.sh"\n{lines[1]}\n')
    given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12", "TOOLKIT_RUN_DIR": str(folder)}
    done = subprocess.run(
        ["bash", str(batch)], env=given | environment, stdout=subprocess.PIPE, text=True, check=True
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
