"""The jobscripts that train nothing, as bash runs them; srun, scontrol and Jupyter are played."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
REPO = Path(__file__).resolve().parents[3]
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=0 exec "$@"
"""
# Ends in order on SIGTERM, as Jupyter does; without one it goes on for as long as it is told.
JUPYTER = """#!/bin/bash
echo "jupyter $*"
[[ -n $JUPYTER_TOKEN ]] && echo has a token
trap 'echo ended in order; exit 0' TERM
for ((turn = 0; turn < ${LIVES:-600}; turn++)); do sleep 0.1 & wait $!; done
"""
PYTHON = """#!/bin/bash
echo "python $*"
exit ${WARM_CODE:-0}
"""


@pytest.fixture
def node(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "stop").mkdir()
    _program(tmp_path / "bin" / "srun", SRUN)
    return tmp_path


def _program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def start(node, script, *arguments, **more):
    environment = {
        "PATH": f"{node / 'bin'}:{os.environ['PATH']}:/usr/sbin",
        "TOOLKIT_RUNS": str(node / "runs"),
        "TOOLKIT_ENV": str(node / "env"),
        "TOOLKIT_LIB": str(REPO),
        "TOOLKIT_JOBSCRIPTS": str(REPO / "jobscripts"),
        "TOOLKIT_STOP_DIR": str(node / "stop"),
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURMD_NODENAME": "gpu-001",
        "USER": "ada",
        **more,
    }
    return subprocess.Popen(
        ["bash", str(REPO / "jobscripts" / script), *arguments],
        env=environment,
        cwd=node,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output(process, code):
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code, said
    return said


def running(node, process):
    deadline = time.monotonic() + 30
    while not (node / "runs" / "12" / "token").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    assert process.poll() is None


@pytest.fixture
def notebook(node):
    _program(node / "env" / "bin" / "jupyter-lab", JUPYTER)
    (node / "env" / "bin" / "python").symlink_to(sys.executable)
    return node


def test_an_idle_notebook_ends_itself_and_its_job(notebook):
    said = output(start(notebook, "interactive.sbatch", LIVES="3", TOOLKIT_IDLE_MINUTES="10"), 0)
    assert "--ServerApp.shutdown_no_activity_timeout=600" in said
    assert "has a token" in said
    token = (notebook / "runs" / "12" / "token").read_text()
    assert token not in said
    assert (notebook / "runs" / "12" / "token").stat().st_mode & 0o077 == 0


def test_a_notebook_whose_machine_is_taken_comes_back(notebook):
    process = start(notebook, "interactive.sbatch")
    running(notebook, process)
    (notebook / "stop" / "12.0.json").write_text('{"cause": "spot-interruption"}')
    assert "ended in order" in output(process, 85)


@pytest.mark.parametrize(("left", "code"), [(60, 0), (9999, 85)])
def test_a_notebook_ends_at_its_time_limit_and_comes_back_from_preemption(notebook, left, code):
    ends = str(int(time.time()) + left)
    process = start(notebook, "interactive.sbatch", SLURM_JOB_END_TIME=ends)
    running(notebook, process)
    process.send_signal(signal.SIGUSR1)
    assert "ended in order" in output(process, code)


def test_without_jupyter_the_job_says_what_to_install(node):
    (node / "env" / "bin" / "python").symlink_to(sys.executable)
    said = output(start(node, "interactive.sbatch"), 93)
    assert "no Jupyter in the Python environment" in said
    assert "add jupyterlab to training.requirements" in said


@pytest.mark.parametrize("code", [0, 85, 93])
def test_a_warm_up_asks_for_the_datasets_and_ends_with_its_code(node, code):
    _program(node / "env" / "bin" / "python", PYTHON)
    played = {"WARM_CODE": str(code), "TOOLKIT_DATA_PYTHON": str(node / "env" / "bin" / "python")}
    said = output(start(node, "data-warmup.sbatch", "a b", "c", **played), code)
    assert "python -m toolkit.training.datasets warm a b c" in said


def test_a_warm_up_of_nothing_is_refused(node):
    assert "no dataset" in output(start(node, "data-warmup.sbatch"), 93)


def test_the_smoke_job_has_the_ranks_meet(node):
    for name in ("python", "torchrun"):
        (node / "env" / "bin" / name).symlink_to(Path(sys.executable).parent / name)
    said = output(start(node, "smoke.sbatch", SLURM_GPUS_ON_NODE="2"), 0)
    assert "node gpu-001" in said
    assert "rank 1 on gpu-001: GPU pretended" in said
    assert "[toolkit] 2 ranks: everything works" in said
    assert not list((node / "runs").glob("*/smoke.*"))
