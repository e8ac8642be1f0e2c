"""The jobscripts without training, as bash runs them.

srun and scontrol are stand-ins. One test checks that each jobscript runs in the given container or
not at all.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.contract.training.job_ids import job_id
from tests.patience import PROGRAM_SECONDS
from toolkit.submit import checks
from toolkit.submit.plan import plan
from toolkit.submit.slurm_client import SlurmClient

pytestmark = pytest.mark.timeout(1800)
REPO = Path(__file__).resolve().parents[3]
JOB = job_id(20)  # test_torchrun_job has the numbers below
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=0 exec "$@"
"""
# The real Jupyter. It refuses root without this option, and these tests run as root.
JUPYTER = f"""#!/bin/bash
exec {Path(sys.executable).parent}/jupyter-server --allow-root "$@"
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
        "SLURM_JOB_ID": JOB,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURMD_NODENAME": "gpu-001",
        "USER": "ada",
        "HOME": str(node),
        **more,
    }
    with (node / "job.log").open("w") as log:
        return subprocess.Popen(
            ["bash", str(REPO / "jobscripts" / script), *arguments],
            env=environment,
            cwd=node,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def ended(node, process, code):
    """Wait for the job's end with this code; return its log."""
    assert process.wait(timeout=PROGRAM_SECONDS) == code, (node / "job.log").read_text()
    return (node / "job.log").read_text()


def status(node, token, what="status"):
    """Return the HTTP status of a request to the node's notebook.

    None means that the notebook does not answer yet.
    """
    said = re.search(r"the notebook is at (\S+);", (node / "job.log").read_text())
    if said is None:
        return None
    request = urllib.request.Request(
        f"http://{said[1]}/api/{what}", headers={"Authorization": f"token {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310  # http, to this machine
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def answering(node, process):
    """Wait until the notebook answers, and return its token."""
    token, deadline = node / "runs" / JOB / "token", time.monotonic() + PROGRAM_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if token.exists() and status(node, token.read_text()) == 200:
            return token.read_text()
        time.sleep(0.1)
    raise AssertionError((node / "job.log").read_text())


@pytest.fixture
def notebook(node):
    _program(node / "env" / "bin" / "jupyter-server", JUPYTER)
    (node / "env" / "bin" / "python").symlink_to(sys.executable)
    return node


def test_a_notebook_that_nobody_uses_ends_itself_and_its_job_though_its_page_is_open(notebook):
    process = start(notebook, "interactive.sbatch", TOOLKIT_IDLE_SECONDS="10")
    token = answering(notebook, process)
    assert status(notebook, "another") == 403
    assert (notebook / "runs" / JOB / "token").stat().st_mode & 0o077 == 0
    while process.poll() is None:  # requests of an open JupyterLab page, but more of them
        for what in ("kernels", "sessions", "terminals", "contents"):
            status(notebook, token, what)
        time.sleep(1)
    said = ended(notebook, process, 0)
    assert "received signal 15, stopping" in said
    assert "the notebook was idle" in said
    assert token not in said


BROKEN = """#!/bin/bash
echo >>watched
[[ $(wc -l <watched) -ge 3 ]]
"""
SERVES = """#!/bin/bash
exec sleep 60
"""


def test_a_watch_over_its_use_that_fails_is_started_again_and_the_log_says_so_once(node):
    _program(node / "env" / "bin" / "jupyter-server", SERVES)
    _program(node / "env" / "bin" / "python", BROKEN)
    said = ended(node, start(node, "interactive.sbatch"), 0)
    assert said.count("notebook-idle failed, and is started again") == 1
    assert said.endswith("minutes: it has ended\n")
    assert (node / "watched").read_text() == "\n" * 3


HANGS = """#!/bin/bash
trap '' TERM
touch {hangs}
while sleep 1; do :; done
"""
IDLE_ONCE_IT_HANGS = """#!/bin/bash
[[ $* != *notebook-idle* ]] || until [[ -e {hangs} ]]; do sleep 0.1; done
"""


def test_a_notebook_whose_server_hangs_at_its_end_ends_all_the_same(node):
    """Kill the server after a while.

    Jupyter hung in its shutdown on 2026-11-27, once.
    """
    hangs = node / "hangs"
    _program(node / "env" / "bin" / "jupyter-server", HANGS.format(hangs=hangs))
    _program(node / "env" / "bin" / "python", IDLE_ONCE_IT_HANGS.format(hangs=hangs))
    said = ended(node, start(node, "interactive.sbatch"), 0)
    assert "did not end within 20 s: killed" in said
    assert said.endswith("minutes: it has ended\n")


def test_a_notebook_whose_instance_is_taken_comes_back(notebook):
    request = notebook / "stop" / f"{JOB}.0.json"
    request.write_text(json.dumps({"at": time.time() - 7200.0}))  # to a job of an earlier cluster
    process = start(notebook, "interactive.sbatch")
    token = answering(notebook, process)
    time.sleep(2.5)
    assert status(notebook, token) == 200
    request.write_text(json.dumps({"cause": "spot-interruption", "at": time.time()}))
    said = ended(notebook, process, 85)
    assert "received signal 15, stopping" in said
    assert "the notebook starts on another" in said
    assert status(notebook, token) is None


@pytest.mark.parametrize(("left", "code"), [(60, 0), (9999, 85)])
def test_a_notebook_ends_at_its_time_limit_and_comes_back_from_preemption(notebook, left, code):
    ends = str(int(time.time()) + left)
    process = start(notebook, "interactive.sbatch", SLURM_JOB_END_TIME=ends)
    token = answering(notebook, process)
    process.send_signal(signal.SIGUSR1)
    assert "received signal 15, stopping" in ended(notebook, process, code)
    assert status(notebook, token) is None


def test_without_jupyter_the_job_says_what_to_install(node):
    (node / "env" / "bin" / "python").symlink_to(sys.executable)
    said = ended(node, start(node, "interactive.sbatch"), 93)
    assert "no Jupyter in the Python environment" in said
    assert "add jupyterlab to training.requirements" in said


@pytest.mark.parametrize("code", [0, 85, 93])
def test_a_warm_up_asks_for_the_datasets_and_ends_with_its_code(node, code):
    _program(node / "env" / "bin" / "python", PYTHON)
    played = {"WARM_CODE": str(code), "TOOLKIT_DATA_PYTHON": str(node / "env" / "bin" / "python")}
    said = ended(node, start(node, "data-warmup.sbatch", "a b", "c", **played), code)
    assert "python -m toolkit.datasets warm a b c" in said


@pytest.mark.parametrize("code", [0, 85, 93])
def test_a_stage_job_hands_on_its_words_and_ends_with_the_copys_code(node, code):
    _program(node / "env" / "bin" / "python", PYTHON)
    played = {"WARM_CODE": str(code), "TOOLKIT_DATA_PYTHON": str(node / "env" / "bin" / "python")}
    said = ended(node, start(node, "stage.sbatch", "get", "a@1", "/work/a b", **played), code)
    assert "python -m toolkit.datasets get a@1 /work/a b" in said


def test_a_stage_job_without_words_is_refused(node):
    assert "nothing to copy" in ended(node, start(node, "stage.sbatch"), 93)


SLOW = """#!/bin/bash
touch began
while [[ ! -e go ]]; do sleep 0.02; done
exec {real} "$@"
"""


def test_a_signal_that_comes_during_the_preparations_is_passed_on_after_them(node):
    _program(node / "env" / "bin" / "python", PYTHON)
    _program(node / "bin" / "df", SLOW.format(real=shutil.which("df")))
    played = {"WARM_CODE": "85", "TOOLKIT_DATA_PYTHON": str(node / "env" / "bin" / "python")}
    process = start(node, "data-warmup.sbatch", "a", **played)
    deadline = time.monotonic() + PROGRAM_SECONDS
    while not (node / "began").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGUSR1)
    (node / "go").touch()
    assert "time-limit: the workers are asked to save and stop" in ended(node, process, 85)
    assert (node / "runs" / JOB / f"stop.{JOB}.0.json").exists()


def test_a_warm_up_of_nothing_is_refused(node):
    assert "no dataset" in ended(node, start(node, "data-warmup.sbatch"), 93)


def test_the_smoke_job_has_the_ranks_meet(node):
    for name in ("python", "torchrun"):
        (node / "env" / "bin" / name).symlink_to(Path(sys.executable).parent / name)
    any_disk = {"TOOLKIT_MIN_DISK_MIB_S": "0"}  # the test host's may be busy
    said = ended(node, start(node, "smoke.sbatch", SLURM_GPUS_ON_NODE="2", **any_disk), 0)
    assert "node gpu-001" in said
    assert "rank 1 on gpu-001: GPU pretended" in said
    assert "[toolkit] 2 ranks: everything works" in said
    assert not list((node / "runs").glob("*/smoke.*"))


IN_PYXIS = """#!/bin/bash
[[ $1 != --help ]] || exec echo --container-image=
echo "srun $*"
"""


class Silent:
    """A Slurm whose every answer is empty."""

    def run(self, argv, *, timeout=60):
        return ""


@pytest.mark.parametrize(
    "path", sorted((REPO / "jobscripts").glob("*.sbatch")), ids=lambda path: path.stem
)
def test_a_job_runs_in_its_container_or_not_at_all_and_submit_knows_which(node, path):
    _program(node / "bin" / "srun", IN_PYXIS)
    (node / "env" / "bin" / "python").symlink_to(sys.executable)
    _program(node / "env" / "bin" / "deepspeed", "#!/bin/bash\n")
    (node / "train.py").touch()
    image = "team/image@sha256:" + "0123456789abcdef" * 4
    task = {"SLURM_ARRAY_JOB_ID": JOB, "SLURM_ARRAY_TASK_ID": "0"} if path.stem == "sweep" else {}
    process = start(node, path.name, "train.py", TOOLKIT_CONTAINER=image, **task)
    code = process.wait(timeout=PROGRAM_SECONDS)
    said = (node / "job.log").read_text()
    inside = f"--container-image={image} " in said
    assert code == (0 if inside else 93), said
    assert inside or "env -u TOOLKIT_CONTAINER sbatch" in said
    text = path.read_text()
    wanted = plan([], path.name, ["train.py"], text=text, environment={}, container=image)
    found = checks.findings(wanted, text, SlurmClient(Silent()), user="ada", stop=None)
    assert [one.slug for one in found] == ([] if inside else ["container-unheard"])
