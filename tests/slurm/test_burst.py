"""Twenty nodes in one burst, with faults: every job completes, nothing leaks.

The jobs have six, four and two nodes, and eight have one node each.

- Spot capacity runs out while the nodes start.
- slurmctld restarts while the nodes start.
- A quarter of the instances is interrupted while the jobs run.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from slurmplugins.cloud import ec2_messages
from slurmplugins.model import hostlist
from tests.slurm import instances
from tests.slurm.conftest import toolkit
from tests.slurm.instances import LIVE
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SIZES = (6, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1)  # nodes of each job: twenty together
GATE = "/shared/home/ada/gate"  # the jobs work until it exists, however slow the test host is
WORK = f"until [[ -e {GATE} ]]; do sleep 1; done"
# A local instance has no cgroups, so the srun of an attempt that lost a node would outlive the
# attempt. After a minute it would kill the step of the same number, which is the next attempt's.
STEP = f"srun --kill-on-bad-exit=1 bash -c '{WORK}' & trap 'kill -9 $!' TERM; wait $!"
# Free spot instances by type. EC2 gives the rest of the twenty elsewhere, in the same resume.
SPOT_LEFT = {"c7i.large": 7, "m7i.large": 6}
SPOT = sum(SPOT_LEFT.values())
NOTICE = 30.0  # seconds; EC2 gives 120, but the jobs do not watch for the notice
POOL = "farm"


def burst_instances(cluster, *states: str) -> list[dict]:
    return instances.instances_of_pool(cluster, POOL, *states)


def ids(items: list[dict]) -> set[str]:
    return {item["InstanceId"] for item in items}


def jobs(cluster, numbers: list[str]) -> dict[str, dict]:
    """Return the records of jobs that slurmctld knows."""
    show = ("scontrol", "show", "jobs", "--json")
    records = until("slurmctld's answer", lambda: json.loads(cluster.run(*show))["jobs"])
    return {str(job["job_id"]): job for job in records if str(job["job_id"]) in numbers}


def states(cluster, numbers: list[str]) -> Counter[str]:
    return Counter("+".join(job["job_state"]) for job in jobs(cluster, numbers).values())


def interrupt(instance_id: str) -> None:
    toolkit("local", "interrupt", instance_id, "--notice", str(NOTICE))


def assert_one_instance_for_each_node(items: list[dict]) -> None:
    """Assert that no node has two instances: a second one costs money.

    The instances of one launch get their nodes a moment later. Until then they have none.
    """
    live = [ec2_messages.instance(item) for item in items if item["State"]["Name"] != "terminated"]
    owners = Counter(instance.node for instance in live if instance.node)
    assert max(owners.values(), default=0) <= 1, owners
    assert len(live) <= sum(SIZES), owners


@pytest.fixture
def spot_runs_out(cluster):
    pools = {f"{kind}/*/spot": free for kind, free in SPOT_LEFT.items()}
    for pool, free in pools.items():
        toolkit("local", "exhaust", pool, "--free", str(free))
    yield
    for pool in pools:
        toolkit("local", "exhaust", pool, "--restore")


@pytest.fixture(scope="module")
def burst(cluster):
    """The jobs' ids; the first test fills the list."""
    return []


@pytest.fixture(scope="module")
def gate(cluster):
    """A function that makes the gate's file, removed at the end."""
    yield lambda: cluster.as_user("touch", GATE)
    cluster.as_user("rm", "-f", GATE)


def test_a_slurmctld_that_is_killed_in_its_first_minutes_starts_again(cluster):
    """Look for the kill that ended the tests' deploy.

    It came before the first regular save. slurmctld saves the accounts' usage after five minutes.
    Without that file, slurmctld of 25.11 refuses to start on its own state.
    """
    journal = ("journalctl", "--unit=slurmctld", "--no-pager", "--output=cat")
    assert "status=9/KILL" in cluster.run(*journal)
    assert "is UP" in cluster.run("scontrol", "ping")


def test_twenty_nodes_start_although_spot_capacity_runs_out_and_slurmctld_restarts(
    cluster, burst, spot_runs_out
):
    for size in SIZES:
        burst.append(
            cluster.as_user(
                *("sbatch", "--parsable", "--chdir=/shared/home/ada", "--partition=batch"),
                *(
                    f"--nodes={size}",
                    "--ntasks-per-node=1",
                    "--exclusive",
                    "--requeue",
                    f"--wrap={STEP}",
                ),
            ).strip()
        )
    until("a launch", lambda: burst_instances(cluster, "pending", "running"))
    cluster.run("systemctl", "restart", "slurmctld")

    until("every job running", lambda: states(cluster, burst)["RUNNING"] == len(SIZES))
    launched = burst_instances(cluster, "pending", "running")
    assert_one_instance_for_each_node(launched)
    assert len(launched) == sum(SIZES)
    lifecycles = Counter(item.get("InstanceLifecycle", "on-demand") for item in launched)
    # slurmctld may ask for the jobs in several calls. A later call takes no refused spot offering.
    assert 0 < lifecycles["spot"] <= SPOT
    assert lifecycles["on-demand"] == sum(SIZES) - lifecycles["spot"]


def test_every_job_completes_after_a_quarter_of_the_instances_is_interrupted(cluster, burst, gate):
    spot = [item for item in burst_instances(cluster, "running") if item.get("InstanceLifecycle")]
    interrupted = spot[: sum(SIZES) // 4]
    nodes = {str(ec2_messages.instance(item).node) for item in interrupted}
    affected_jobs = [
        number
        for number, job in jobs(cluster, burst).items()
        if nodes & {str(node) for node in hostlist.expand(job["nodes"])}
    ]
    assert affected_jobs
    # At once: a job that loses one instance gives the others back.
    with ThreadPoolExecutor(len(interrupted)) as pool:
        list(pool.map(interrupt, sorted(ids(interrupted))))

    def all_requeued_jobs_run() -> bool:
        assert_one_instance_for_each_node(burst_instances(cluster, *LIVE))
        records = jobs(cluster, burst)
        running = states(cluster, burst)["RUNNING"] == len(SIZES)
        return running and all(records[number]["restart_cnt"] for number in affected_jobs)

    until("every job that lost a machine running again", all_requeued_jobs_run)
    running_instances = burst_instances(cluster, "running")
    assert not ids(interrupted) & ids(running_instances)
    assert len(running_instances) == sum(SIZES)

    gate()
    until("every job completed", lambda: states(cluster, burst)["COMPLETED"] == len(SIZES))


def test_no_instance_of_the_burst_is_left_and_its_nodes_are_powered_down(cluster, burst):
    until("no machine of the pool", lambda: not burst_instances(cluster, *LIVE))

    def all_powered_down() -> bool:
        records = json.loads(cluster.run("scontrol", "show", "nodes", "--json"))["nodes"]
        farm = [node for node in records if node["name"].startswith(f"{POOL}-")]
        return all(set(node["state"]) == {"IDLE", "CLOUD", "POWERED_DOWN"} for node in farm)

    until("every node powered down", all_powered_down)
    plan = json.loads(cluster.toolkit("reconcile", "--plan", "--json").stdout)
    actions = [item for item in plan["actions"] if (item["node"] or "").startswith(f"{POOL}-")]
    assert actions == []
