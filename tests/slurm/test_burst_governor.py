"""Jobs that wait for a busy rack: one may go to the cloud, others stay and are told why."""

from __future__ import annotations

import json

import pytest

from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(1200, func_only=True)]
GATE = "/shared/home/ada/rack-gate"
OUTPUT = "/shared/home/ada/rack"
GOVERN = ("runuser", "-u", "slurm", "--", "/opt/slurm-toolkit/bin/slurm-govern")
WAIT = f"until [ -e {GATE} ]; do sleep 1; done"
NODE = 'echo "$SLURMD_NODENAME"'


def submit(cluster, command: str, *options: str, user: str = "ada") -> str:
    """Submit a job to the rack, and return its number."""
    home = f"--chdir=/shared/home/{user}"
    words = ("sbatch", "--parsable", "--partition=rack", "--exclusive", "--requeue", home)
    return cluster.run("runuser", "-u", user, "--", *words, *options, f"--wrap={command}").strip()


def decisions(cluster) -> dict[str, dict]:
    """Return the governor's decisions by the job's number."""
    answer = cluster.toolkit("burst", "status", "--json").stdout
    return {str(item["job"]): item for item in json.loads(answer)["decisions"]}


def spending(cluster, job: str) -> list[dict]:
    """Return what the governor remembers of the job's attempts in the cloud."""
    memory = json.loads(cluster.run("cat", "/srv/head/governor/governor.json"))
    return [item for key, item in memory["attempts"].items() if key.startswith(f"{job}.")]


def ended_bursts(cluster, job: str) -> list[dict]:
    """Return the job's attempts in the cloud, once all have ended.

    The governor must know of each end. A pass that is asked for does nothing while the timer's own
    pass is under way.
    """
    cluster.run(*GOVERN)
    attempts = spending(cluster, job)
    return attempts if all(item["ended"] for item in attempts) else []


def states(cluster, job: str) -> list[str]:
    return cluster.job(job)["job_state"]


@pytest.fixture(scope="module")
def rack(cluster):
    """A job that has the rack's only node until the gate opens."""
    job = submit(cluster, WAIT, "--time=2:00:00")
    until("the rack's job", lambda: states(cluster, job) == ["RUNNING"])
    yield job
    cluster.as_user("touch", GATE)
    until("the rack's end", lambda: not any("RUNNING" in j["job_state"] for j in cluster.jobs(job)))
    cluster.as_user("rm", "-f", GATE)


@pytest.fixture(scope="module")
def array(cluster, rack):
    """A waiting job array: its nodes boot beside those of another job."""
    return submit(cluster, NODE, "--time=10", "--array=1-2", "--output=/dev/null")


@pytest.fixture(scope="module")
def without_budget(cluster, rack):
    """A waiting job of an account that has no burst budget."""
    return submit(cluster, NODE, "--time=2", user="grace")


def test_a_job_that_waits_for_racks_completes_in_the_cloud(cluster, rack, array, without_budget):
    job = submit(cluster, NODE, "--time=10", f"--output={OUTPUT}-%j")

    def is_done() -> bool:
        cluster.run(*GOVERN)
        return states(cluster, job) == ["COMPLETED"]

    until("the job in the cloud", is_done)
    assert cluster.run("cat", f"{OUTPUT}-{job}").strip().startswith("farm-")
    record = cluster.job(job)
    assert record["partition"] == "batch"
    assert "toolkit:burst age: may start in batch" in record["admin_comment"]
    # Racks' own job went on.
    assert states(cluster, rack) == ["RUNNING"]
    (attempt,) = until("the end of its burst", lambda: ended_bursts(cluster, job))
    assert 0 < float(attempt["usd"]) < 0.05


def test_all_tasks_of_an_array_complete_in_the_cloud(cluster, array):
    def are_done() -> bool:
        cluster.run(*GOVERN)
        return all(task["job_state"] == ["COMPLETED"] for task in cluster.jobs(array))

    until("the array in the cloud", are_done)
    tasks = cluster.jobs(array)
    assert [task["partition"] for task in tasks] == ["batch", "batch"]
    for task in tasks:
        job = str(task["job_id"])
        (_,) = until("the end of its burst", lambda job=job: ended_bursts(cluster, job))


CONDITIONS = {
    "deadline": ("--time=10", "--deadline=now+1hour"),
    "cloud-late": ("--time=10", "--deadline=now+11minutes"),
    "racks-soon": ("--time=2", "--comment=site-data=2T"),  # its data would be later than racks
    "data-unknown": ("--time=2", "--partition=silo"),
    "racks-lack": ("--time=60", "--partition=silo", "--comment=s3-data"),
}
"""Options by the reason of the decision, while backfill expects the racks in about two hours."""


def test_data_deadlines_and_limits_of_racks_decide(cluster, rack):
    jobs = {
        reason: submit(cluster, NODE, *options, "--output=/dev/null")
        for reason, options in CONDITIONS.items()
    }
    missing = dict(jobs)

    def each_is_told() -> bool:
        seen = decisions(cluster)
        for reason, job in list(missing.items()):
            told = seen[job]["reason"] if job in seen else ""
            # The head's own timer may have let a job go meanwhile: its comment then says why.
            comment = cluster.job(job)["admin_comment"]
            if told == reason or f"toolkit:burst {reason}: " in comment:
                del missing[reason]
        return not missing

    try:
        until(f"the decisions {', '.join(jobs)}", each_is_told)
        assert "stays" in cluster.toolkit("why", jobs["cloud-late"]).stdout
    finally:
        cluster.run("scancel", *jobs.values())


def test_a_job_of_an_account_without_budget_stays_and_is_told_why(cluster, without_budget):
    cluster.run(*GOVERN)
    words = "account language has no burst budget"
    record = cluster.job(without_budget)
    assert record["job_state"] == ["PENDING"]
    assert record["partition"] == "rack"
    assert f"toolkit:burst stays, no-budget: {words}" in record["admin_comment"]
    assert decisions(cluster)[without_budget]["reason"] == "no-budget"
    assert f"burst: stays: {words}" in cluster.toolkit("why", without_budget).stdout


def test_a_job_whose_rack_is_free_soon_stays(cluster, rack, without_budget):
    cluster.run("scontrol", "update", f"jobid={rack}", "timelimit=8")
    job = submit(cluster, NODE, "--time=1", f"--output={OUTPUT}-%j")
    # Backfill looks every five seconds, and the rule would let the job go after fifteen.
    until(
        "backfill's expectation",
        lambda: (
            decisions(cluster)[job]["reason"] == "racks-soon"
            and decisions(cluster)[job]["waited"] > 20
        ),
    )
    cluster.run(*GOVERN)
    assert cluster.job(job)["partition"] == "rack"
    assert "stays: racks expected in" in cluster.toolkit("why", job).stdout
    cluster.as_user("touch", GATE)
    until("the job on racks", lambda: states(cluster, job) == ["COMPLETED"])
    assert cluster.run("cat", f"{OUTPUT}-{job}").strip() == "rack-001"
