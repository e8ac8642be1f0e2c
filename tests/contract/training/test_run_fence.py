"""A run's folder, which the batch scripts give to one attempt alone.

At any time one attempt has the folder. squeue and scontrol are stand-ins.
"""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.fakes import checkpoint_disk as disk
from tests.fakes.training import JsonCodec, MemoryTracker, Part
from tests.patience import PROGRAM_SECONDS
from toolkit.training import Run, SampleOrder
from toolkit.training.attempt.attempt import current
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import Superseded
from toolkit.training.recording.audit import audit
from toolkit.training.requeue.retry_budget import parse_dollars
from toolkit.training.run_folder.attempts import AttemptsFile

pytestmark = pytest.mark.timeout(1800)

REPO = Path(__file__).resolve().parents[3]
PREFLIGHT = f"""
source "{REPO}/jobscripts/lib/preflight.sh"
prepare
echo "OWNER $TOOLKIT_RUN_OWNER"
"""
# squeue answers the next line of the file `queue`, `JOB STATE,JOB STATE`; the last line is
# repeated. As in Slurm, an unknown job is an error. An empty line means that slurmctld does not
# answer. The file `facts` has the other facts of each job: JOB TASK RESTARTS COMMENT.
SQUEUE = """#!/bin/bash
case $* in
  *--Format=JobID,ArrayTaskID,RestartCnt) exec cut -d " " -f 1,2,3 {root}/facts ;;
  *--Format=JobID,RestartCnt) exec cut -d " " -f 1,3 {root}/facts ;;
  *"--format=%A %k") exec cut -d " " -f 1,4- {root}/facts ;;
esac
[[ -z $SQUEUE_PARTITION && $* =~ --jobs=([0-9]+)\\  ]] || exit 2
job=${{BASH_REMATCH[1]}} now=$(head -n 1 {root}/queue)
[[ $(wc -l <{root}/queue) == 1 ]] || sed -i 1d {root}/queue
[[ -n $now ]] || {{ echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }}
tr , '\\n' <<<"$now" | grep "^$job " ||
  {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }}
"""
# A shared filesystem that fails until a job has waited for so long.
REFUSING = """#!/bin/bash
waited=$(($(paste -sd + {root}/slept)))
((waited >= {seconds})) || {{ echo "$0: Input/output error" >&2; exit 1; }}
exec /bin/{name} "$@"
"""
# The answer is the caller's restart, unless a file names a later one.
SCONTROL = """#!/bin/bash
[[ $1 == show ]] || {{ echo "$*" >>{root}/scontrol.log; exit; }}
restarts=$(cat {root}/restarts 2>/dev/null || echo "$SLURM_RESTART_COUNT")
echo "   Requeue=1 Restarts=$restarts BatchFlag=1"
"""
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=0 exec "$@"
"""
# timeout without its limit: on a busy host an answer may come too late, which counts as none.
PATIENT = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "${@:2}"
"""
TORCHRUN = f"""#!/bin/bash
while [[ $1 != -- ]]; do shift; done
exec {sys.executable} "${{@:2}}"
"""


@dataclass
class Cluster:
    """A cluster whose jobs share the run `shared`, unless `run=""`."""

    root: Path

    def __post_init__(self) -> None:
        (self.root / "env" / "bin").mkdir(parents=True)
        (self.root / "env" / "bin" / "python").symlink_to(sys.executable)
        self.program("squeue", SQUEUE.format(root=self.root))
        self.program("sleep", f'#!/bin/bash\necho "$1" >>{self.root}/slept\n')
        (self.root / "slept").write_text("0\n")
        self.program("scontrol", SCONTROL.format(root=self.root))
        self.program("srun", SRUN)
        self.program("job.sh", PREFLIGHT)
        self.program("env/bin/torchrun", TORCHRUN)
        self.slurm_id("first")

    def program(self, name, text):
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)

    def refusing(self, name, seconds):
        self.program(name, REFUSING.format(root=self.root, name=name, seconds=seconds))

    def scontrol(self):
        """Return the commands that changed jobs."""
        log = self.root / "scontrol.log"
        return log.read_text().splitlines() if log.exists() else []

    def slurm_id(self, text):
        (self.root / "slurm-id").write_text(f"{text}\n")

    def queue(self, *moments):
        (self.root / "queue").write_text("".join(f"{moment}\n" for moment in moments))

    def start(self, job, restart, *argv, run="shared", **more):
        environment = {
            "PATH": f"{self.root}:{os.environ['PATH']}:/usr/sbin",
            "TOOLKIT_RUNS": str(self.root / "runs"),
            "TOOLKIT_ENV": str(self.root / "env"),
            "TOOLKIT_LIB": str(REPO),
            "TOOLKIT_JOBSCRIPTS": str(REPO / "jobscripts"),
            "TOOLKIT_STOP_DIR": str(self.root),
            "TOOLKIT_SLURM_ID_FILE": str(self.root / "slurm-id"),
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_CLUSTER_NAME": "demo",
            **({"TOOLKIT_RUN_ID": run} if run else {}),
            **({"SLURM_RESTART_COUNT": str(restart)} if restart else {}),
            **more,
        }
        return subprocess.Popen(
            argv or ["bash", "job.sh"],
            env=environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def claim(self, job, restart=0, **more):
        """Return the output and the exit code of a job's preflight."""
        process = self.start(job, restart, **more)
        return process.communicate(timeout=PROGRAM_SECONDS)[0], process.returncode

    def owners(self, run="shared"):
        """Return `JOB.RESTART` of each attempt in the run's fence."""
        places = (self.root / "runs" / run / "checkpoints" / "owner").iterdir()
        return [".".join(place.name.split(".")[:2]) for place in places]


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


ATTEMPT = """
source "$TOOLKIT_JOBSCRIPTS/lib/preflight.sh"
prepare >/dev/null
container_options
"$TOOLKIT_ENV/bin/python" -c '
import os
from toolkit.training.attempt.attempt import current
from toolkit.training.slurm.job_id import task_name

this = current()
place = this.fence.folder.name.rpartition(".")[0]
print(this.key, *this.stop_files, place, task_name(this.job_id), this.started_at > 1e9)
others = ("SLURM_ARRAY_", "TOOLKIT_SWEEP", "TOOLKIT_REPLAY_OF", "TOOLKIT_OF_JOB",
          "TOOLKIT_CONTAINER")
print({name: value for name, value in os.environ.items() if name.startswith(others)})
'
"""
OTHERS = {
    "SLURM_RESTART_COUNT": "4",
    "SLURM_ARRAY_JOB_ID": "30",
    "SLURM_ARRAY_TASK_ID": "4",
    "SLURM_ARRAY_TASK_MAX": "23",
    "TOOLKIT_RUN_DIR": "/other",
    "TOOLKIT_RUN_OWNER": "/other/checkpoints/owner/30.4.first.ab",
    "TOOLKIT_ATTEMPT_STARTED": "1.0",
    "TOOLKIT_SLURM_ID": "other",
    "TOOLKIT_JUDGED_ATTEMPT": "30.4",
    "TOOLKIT_SWEEP": "digits",
    "TOOLKIT_REPLAY_OF": "5f",
    "TOOLKIT_OF_JOB": "34|TOOLKIT_SWEEP=digits|TOOLKIT_REPLAY_OF=5f",
    "TOOLKIT_CONTAINER_DIGEST": "sha256:c0",
}


LEFT_OUT = "[toolkit] TOOLKIT_SWEEP={} is ignored: it belongs to job {}, which submitted this one\n"


@pytest.mark.parametrize("restart", [0, 1])
def test_an_attempt_is_the_same_with_another_jobs_environment_beneath_its_own(cluster, restart):
    """Submit a job from within another job."""
    cluster.program("attempt.sh", ATTEMPT)
    told = []
    for beneath in ({}, OTHERS):
        (cluster.root / "facts").write_text(f"90 4 4\n9 N/A {restart}\n")
        own = {"SLURM_RESTART_COUNT": str(restart)} if restart else {}
        job = cluster.start(9, 0, "bash", "attempt.sh", run="", **{**beneath, **own})
        said = job.communicate(timeout=PROGRAM_SECONDS)[0]
        told.append(said.replace(LEFT_OUT.format("digits", 34), ""))
        shutil.rmtree(cluster.root / "runs")
    assert told[0] == told[1]
    assert f"\n9.{restart} {cluster.root}/9.{restart}.json " in told[0]


SWEEP = """
source "$TOOLKIT_JOBSCRIPTS/lib/preflight.sh"
settle_attempt
export TOOLKIT_SWEEP=${TOOLKIT_SWEEP:-sweep-$SLURM_JOB_ID}
prepare &>/dev/null
echo "$SLURM_JOB_ID: $TOOLKIT_SWEEP"
if [[ $# -gt 0 ]]; then SLURM_JOB_ID=$1 exec env "${@:2}" bash sweep.sh; fi
"""


@pytest.mark.parametrize(
    ("outer", "inner", "sweeps"),
    [
        ({}, (), "7: sweep-7\n8: sweep-8\n"),
        ({"TOOLKIT_SWEEP": "a b"}, (), f"7: a b\n{LEFT_OUT.format('a b', 7)}8: sweep-8\n"),
        ({"TOOLKIT_SWEEP": "a b"}, ("TOOLKIT_SWEEP=a",), "7: a b\n8: a\n"),
    ],
)
def test_a_job_that_a_trial_submits_is_of_no_sweep_but_the_one_it_is_given(
    cluster, outer, inner, sweeps
):
    cluster.program("sweep.sh", SWEEP)
    job = cluster.start(7, 0, "bash", "sweep.sh", "8", *inner, run="", **outer)
    assert job.communicate(timeout=PROGRAM_SECONDS)[0] == sweeps


def test_a_task_of_an_array_and_a_restart_that_slurm_gave_up_are_what_their_environment_says(
    cluster,
):
    task = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "2"}
    (cluster.root / "facts").write_text("10 1 0\n9 2 3\n")  # slurmctld has requeued it since
    cluster.program("job.sh", PREFLIGHT + 'echo "TASK $SLURM_ARRAY_TASK_ID"')
    said, _ = cluster.claim(9, 1, **task)
    assert cluster.owners() == ["9.1"]
    assert "TASK 2" in said


def test_a_restart_takes_over_from_the_attempt_before_it_without_a_question(cluster):
    assert cluster.claim(7)[1] == 0
    assert cluster.owners() == ["7.0"]
    assert cluster.claim(7, 3)[1] == 0
    assert cluster.owners() == ["7.3"]


PROGRAMS = ["mkdir", "mv", "df"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_restart_that_meets_errors_of_the_shared_folder_for_half_a_minute_begins(cluster, name):
    assert cluster.claim(7)[1] == 0
    cluster.refusing(name, 30)
    said, code = cluster.claim(7, 1)
    assert (code, cluster.owners()) == (0, ["7.1"]), said
    assert cluster.scontrol() == []


JOBSCRIPTS = sorted((REPO / "jobscripts").glob("*.sbatch"))
# The third sleep brings the helpers back.
BACK = """#!/bin/bash
echo "$1" >>{root}/slept
(($(wc -l <{root}/slept) < 4)) || ln -sfn {repo}/jobscripts {root}/away
"""


def started(cluster, script, restart, **array):
    """Run a job script whose helpers' folder is absent.

    Returns its exit code and its output.
    """
    away = {"TOOLKIT_JOBSCRIPTS": str(cluster.root / "away")}
    job = cluster.start(9, restart, "bash", str(script), run="", **away, **array)
    said, _ = job.communicate(timeout=PROGRAM_SECONDS)
    return job.returncode, said


@pytest.mark.parametrize("script", JOBSCRIPTS, ids=lambda script: script.stem)
def test_a_job_whose_helpers_are_away_waits_a_minute_and_a_restart_is_held_after_it(
    cluster, script
):
    assert started(cluster, script, 0)[0] == 93  # the reason may be a mistake of the user
    assert cluster.scontrol() == []
    code, said = started(cluster, script, 1)
    assert (code, cluster.scontrol()) == (93, ["requeuehold 9"])
    assert "away/lib/preflight.sh: No such file or directory" in said
    assert sum(map(int, (cluster.root / "slept").read_text().split())) == 120


def test_a_job_whose_helpers_come_back_in_that_minute_begins(cluster):
    cluster.program("sleep", BACK.format(root=cluster.root, repo=REPO))
    cluster.program("srun", "#!/bin/bash\n")  # the smoke job would measure this host's disk
    for script in JOBSCRIPTS:
        (cluster.root / "slept").write_text("0\n")
        code, said = started(cluster, script, 0)
        assert "No such file" not in said, script
        assert "job 9, restart 0" in said or "cannot start" in said, (script, code, said)
        (cluster.root / "away").unlink()


def test_helpers_of_which_one_is_missing_are_not_begun_with(cluster):
    lib = cluster.root / "away" / "lib"
    shutil.copytree(REPO / "jobscripts" / "lib", lib)
    (lib / "owner.sh").unlink()
    assert [started(cluster, JOBSCRIPTS[0], restart)[0] for restart in (0, 1)] == [93, 93]
    assert cluster.scontrol() == ["requeuehold 9"]


@pytest.mark.parametrize(
    ("array", "task", "name"), [("9", "3", "9_3"), ("7", "3", "9"), ("", "", "9")]
)
def test_no_other_task_is_held_with_one_whose_helpers_are_away(cluster, array, task, name):
    given = {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": task} if array else {}
    assert started(cluster, JOBSCRIPTS[0], 1, **given)[0] == 93
    assert cluster.scontrol() == [f"requeuehold {name}"]


def test_a_restart_without_helpers_that_slurm_has_given_up_holds_no_later_one(cluster):
    (cluster.root / "restarts").write_text("12\n")
    assert started(cluster, JOBSCRIPTS[0], 1)[0] == 85
    assert cluster.scontrol() == []


def test_where_slurmctld_holds_nothing_a_restart_without_helpers_comes_back(cluster):
    cluster.program("scontrol", "#!/bin/bash\nexit 1\n")
    assert started(cluster, JOBSCRIPTS[0], 1)[0] == 85


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_restart_that_meets_lasting_filesystem_errors_is_held_with_the_reason(cluster, name):
    assert cluster.claim(7)[1] == 0
    (cluster.root / "facts").write_text("70 N/A 1 others\n7 N/A 1 my words\n")
    cluster.refusing(name, 9999)
    said, code = cluster.claim(7, 1)
    note, hold = cluster.scontrol()
    assert (code, hold) == (93, "requeuehold 7"), said
    assert note.startswith("update jobid=7 comment=my words | toolkit: held: ")
    assert str(cluster.root / "runs") in note
    assert note.endswith("; to go on: scontrol release 7")
    assert said.endswith("[toolkit] job 7 is held; to continue it: scontrol release 7\n")


@pytest.mark.parametrize(
    ("name", "finds"), [("ip", ""), ("ss", 'printf "x x x :%d\\n" {20000..32000}')]
)
@pytest.mark.parametrize("restart", [0, 1])
def test_a_restart_without_an_address_or_a_port_does_not_begin(cluster, name, finds, restart):
    (cluster.root / "facts").write_text("7 N/A 1 my words\n")
    cluster.program(name, f"#!/bin/bash\n{finds}\n")
    rendezvous = f'source "{REPO}/jobscripts/lib/rendezvous.sh"\nrendezvous\n'
    cluster.program("job.sh", PREFLIGHT + rendezvous)
    said, code = cluster.claim(7, restart)
    held = [line for line in cluster.scontrol() if line.startswith("requeuehold")]
    assert (code, held) == (93, ["requeuehold 7"] * restart), said


@pytest.mark.parametrize("name", ["squeue", "scontrol"])
def test_a_restart_is_held_though_slurmctld_misses_the_first_requests(cluster, name):
    assert cluster.claim(7)[1] == 0
    (cluster.root / "facts").write_text("7 N/A 1 my words\n")
    real = (cluster.root / name).read_text()
    misses = f"n=$(cat {name}.n 2>/dev/null); echo $((n + 1)) >{name}.n; ((n >= 4)) || exit 1"
    cluster.program(name, real.replace("#!/bin/bash", f"#!/bin/bash\n{misses}"))
    cluster.refusing("mkdir", 9999)
    said, code = cluster.claim(7, 1)
    note, hold = cluster.scontrol()
    assert (code, hold) == (93, "requeuehold 7"), said
    assert "comment=my words | toolkit: held: " in note


def test_a_first_start_that_meets_filesystem_errors_is_refused_soon_and_fails(cluster):
    cluster.refusing("mkdir", 3)
    assert cluster.claim(7)[1] == 93
    assert cluster.scontrol() == []


CAPS = ["1000", "$99.50", " .5 ", "7."]
NO_CAPS = ["1,000", "200,50", "two hundred", "NaN", "$", "1 000", "€5"]


@pytest.mark.parametrize("cap", CAPS + NO_CAPS)
def test_a_cap_that_is_no_number_of_dollars_is_refused_before_it_costs_any(cluster, cap):
    cluster.program("job.sh", PREFLIGHT.replace("prepare", "preflight job.sh"))
    assert cluster.claim(7, TOOLKIT_MAX_USD=cap)[1] == (0 if cap in CAPS else 93)
    assert (parse_dollars(cap) is None) == (cap in NO_CAPS)
    assert cluster.claim(7, 1, TOOLKIT_MAX_USD=cap)[1] == 0, "it has trained without one"


@pytest.mark.parametrize(("facts", "ends"), [("", 93), ("7 N/A 2 mine\n", 85)])
def test_a_restart_that_slurm_does_not_know_or_has_given_up_holds_nothing(cluster, facts, ends):
    (cluster.root / "facts").write_text(facts)
    cluster.refusing("mkdir", 9999)
    assert cluster.claim(7, 1)[1] == ends
    assert cluster.scontrol() == []


def test_of_an_array_its_last_task_alone_is_held(cluster):
    (cluster.root / "facts").write_text("41 1 0 theirs\n40 3 2 mine\n")
    cluster.refusing("mkdir", 9999)
    assert cluster.claim(40, 2, SLURM_ARRAY_JOB_ID="40", SLURM_ARRAY_TASK_ID="3")[1] == 93
    assert cluster.scontrol()[-1] == "requeuehold 40_3"


def test_an_attempt_that_starts_after_its_successor_is_refused(cluster):
    assert cluster.claim(7, 2)[1] == 0
    said, code = cluster.claim(7, 1)
    assert (code, "restart 2 of this job has taken over" in said) == (85, True)
    assert cluster.owners() == ["7.2"]


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED", "REQUEUE_HOLD", "COMPLETING"])
def test_a_run_of_a_job_that_is_not_over_is_refused_to_another(cluster, state):
    cluster.claim(7)
    cluster.queue(f"7 {state},8 RUNNING")
    said, code = cluster.claim(8)
    assert (code, f"belongs to job 7, which has not ended ({state})" in said) == (93, True)
    assert "set another TOOLKIT_RUN_ID" in said
    assert cluster.owners() == ["7.0"]


@pytest.mark.parametrize("others", ["", "7 COMPLETED,", "7 TIMEOUT,", "77 RUNNING,"])
def test_a_chained_job_goes_on_in_the_run_of_one_that_is_over(cluster, others):
    cluster.claim(7, 4)
    cluster.queue(f"{others}8 RUNNING")
    assert cluster.claim(8, SQUEUE_PARTITION="other")[1] == 0
    assert cluster.owners() == ["8.0"]


def test_a_job_on_its_way_out_is_waited_for(cluster):
    cluster.program("timeout", PATIENT)
    cluster.claim(7)
    cluster.queue("7 COMPLETING,8 RUNNING", "", "7 COMPLETING,8 RUNNING", "8 RUNNING")
    assert cluster.claim(8)[1] == 0
    assert (cluster.root / "slept").read_text().split() == ["0", "5", "5", "5"]


def test_where_slurm_does_not_answer_no_other_jobs_run_is_taken(cluster):
    cluster.claim(7)
    cluster.queue("")
    said, code = cluster.claim(8)
    assert (code, "not ended (slurmctld does not answer)" in said) == (93, True)
    assert cluster.owners() == ["7.0"]


def test_of_jobs_that_start_at_once_exactly_one_has_the_run(cluster):
    jobs = range(20, 28)
    cluster.queue(",".join(f"{job} RUNNING" for job in jobs))
    started = [cluster.start(job, 0) for job in jobs]
    for process in started:
        process.communicate(timeout=PROGRAM_SECONDS)
    assert sorted(process.returncode for process in started) == [0] + [93] * 7
    (winner,) = (job for job, one in zip(jobs, started, strict=True) if one.returncode == 0)
    assert cluster.owners() == [f"{winner}.0"]
    left = cluster.root / "runs" / "shared" / "checkpoints"
    assert [path.name for path in left.iterdir()] == ["owner"]


def test_the_tasks_of_an_array_each_have_a_run_of_their_own(cluster):
    for job in (31, 32, 30):
        array = {"SLURM_ARRAY_JOB_ID": "30", "SLURM_ARRAY_TASK_ID": str(job)}
        assert cluster.claim(job, run="", **array)[1] == 0
    assert [cluster.owners(str(job)) for job in (30, 31, 32)] == [["30.0"], ["31.0"], ["32.0"]]


def test_a_run_of_another_slurms_job_is_refused_until_somebody_lets_it_go(cluster):
    """Claim the run of a job with the other Slurm's number.

    This Slurm knows nothing of that job: the number is another job's here.
    """
    cluster.claim(7, 4)
    cluster.slurm_id("second")
    for job in (7, 8):
        cluster.queue(f"{job} RUNNING")
        said, code = cluster.claim(job, 5)
        assert (code, "belongs to job 7 of another cluster" in said) == (93, True)
    owner = cluster.root / "runs" / "shared" / "checkpoints" / "owner"
    assert f"rm -r '{owner}'" in said
    subprocess.run(["rm", "-r", str(owner)], check=True)
    assert cluster.claim(8)[1] == 0


def folder(said):
    return said.partition("run folder ")[2].splitlines()[0].rpartition("/")[2]


def test_a_restart_takes_no_folder_that_a_job_of_an_earlier_slurm_of_the_same_name_left(cluster):
    folders = []
    for slurm, restart in (("first", 0), ("first", 1), ("second", 1), ("second", 2)):
        cluster.slurm_id(slurm)
        folders.append(folder(cluster.claim(7, restart, run="")[0]))
    assert folders == ["7", "7", "7.2", "7.2"]


def test_a_restart_takes_no_folder_of_an_older_job_that_was_refused_at_its_start(cluster):
    """Claim the folder of a job that had no disk space.

    The folder has a fence, but no record of the submission.
    """
    assert cluster.claim(7, run="", TOOLKIT_MIN_FREE_MIB=str(1 << 40))[1] == 93
    assert not (cluster.root / "runs" / "7" / "submission").exists()
    cluster.slurm_id("second")
    said, code = cluster.claim(7, 1, run="")
    assert (code, folder(said)) == (0, "7.2")


def test_a_folder_without_an_owner_is_still_its_jobs(cluster):
    """Delete the fence's place, and then the fence.

    A kill during a takeover leaves no place, and a person may delete the fence.
    """
    cluster.claim(7, run="")
    owner = cluster.root / "runs" / "7" / "checkpoints" / "owner"
    for place in owner.iterdir():
        place.rmdir()
    assert folder(cluster.claim(7, 1, run="")[0]) == "7"
    shutil.rmtree(owner)
    assert folder(cluster.claim(7, 2, run="")[0]) == "7"


def test_a_folder_from_before_slurm_had_an_id_is_still_its_jobs(cluster):
    cluster.slurm_id("")
    cluster.claim(7, run="")
    cluster.slurm_id("first")
    said, code = cluster.claim(7, 1, run="")
    assert (code, folder(said)) == (0, "7")


TRAINING = """
import sys, time
from pathlib import Path
from tests.fakes.training import JsonCodec, MemoryTracker, Part
from toolkit.training import Run, SampleOrder

with Run(params={}, seed=0, codec=JsonCodec(), tracker=MemoryTracker(), checkpoint_every=1) as run:
    run.resume(model=Part({"x": 1}))
    for batch in run.batches(SampleOrder(30, 8, 1), 3):
        run.step(batch)
        if batch.step == 4 and len(sys.argv) > 1:
            Path("waits").touch()
            while not Path("go").exists():
                time.sleep(0.01)
"""


def test_an_attempt_that_lives_on_beside_its_successor_commits_nothing_and_says_why(cluster):
    """Run two attempts of a job at the same time.

    That happens if slurmctld has given up a node that still works.
    """
    (cluster.root / "train.py").write_text(TRAINING)
    script = str(REPO / "jobscripts" / "torchrun.sbatch")
    old = cluster.start(7, 0, "bash", script, "train.py", "wait")
    deadline = time.monotonic() + PROGRAM_SECONDS
    while not (cluster.root / "waits").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    new = cluster.start(7, 1, "bash", script, "train.py")
    said, _ = new.communicate(timeout=PROGRAM_SECONDS)
    assert new.returncode == 0, said
    place = cluster.root / "runs" / "shared"
    kept = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    (cluster.root / "go").touch()
    said, _ = old.communicate(timeout=PROGRAM_SECONDS)
    assert old.returncode == 85, said
    assert "Superseded: another attempt has taken over this run" in said
    added = {path.name for path in place.rglob("*") if path.is_file()} - {p.name for p in kept}
    assert added == {"verdict.7.0.json"}
    found = audit(place)
    assert (found.ok, found.steps) == (True, 12), found.problems
    causes = [attempt.cause for attempt in AttemptsFile(place / "attempts.jsonl").attempts()]
    assert causes == ["lost", "finished"]
    changed = {path.name for path, content in kept.items() if path.read_bytes() != content}
    assert changed <= {"steps.jsonl"}


def trained(place, restart):
    """Run an attempt in this process, and return its end.

    The attempt has the environment that its batch script would give it.
    """
    doubles = {"world": Solo(), "codec": JsonCodec(), "tracker": MemoryTracker()}
    environment = {
        "SLURM_JOB_ID": "7",
        "SLURM_RESTART_COUNT": str(restart),
        "TOOLKIT_RUN_OWNER": str(place),
        "TOOLKIT_RUN_DIR": str(place.parents[2]),
        "TOOLKIT_STOP_DIR": str(place.parents[2]),
    }
    attempt = current(environment)
    try:
        with Run(params={}, seed=0, attempt=attempt, checkpoint_every=1, **doubles) as run:
            run.resume(model=Part({"x": 1}))
            for batch in run.batches(SampleOrder(8, 8, 1), 1):
                run.step(batch)
    except Superseded:
        return "superseded"
    return "done"


def known(run):
    """Return the attempts file and the audit, without the repeated steps."""
    return (run / "attempts.jsonl").read_bytes(), replace(audit(run), repeated=())


def test_wherever_an_attempt_is_superseded_the_records_are_those_of_its_successor(
    tmp_path, monkeypatch
):
    """Take the run over at each disk operation of an attempt.

    The operations begin with the first of `with Run`, and end with its last.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    ends = Counter()
    for number in itertools.count(1):
        run = tmp_path / str(number)
        places = [run / "checkpoints" / "owner" / f"7.{restart}.first.ab" for restart in (0, 1)]
        places[0].mkdir(parents=True)
        after = []

        def taken_over(call, args, *, run=run, places=places, after=after):
            shutil.rmtree(places[0])
            places[1].mkdir()
            with monkeypatch.context() as elsewhere:
                elsewhere.setattr(threading, "get_native_id", lambda: 1)  # names of temporary files
                assert trained(places[1], 1) == "done"
            after.append(known(run))
            return call(*args)

        with disk.strike(number, taken_over):
            ends[trained(places[0], 0)] += 1
        if not after:
            break
        assert [known(run)] == after, number
    assert ends["superseded"] > ends["done"] > 1, ends
