"""Cloud nodes in the Slurm of a site that the toolkit did not build: joined, used and removed.

The tests are one history, in this order. What takes longer is in long_join.py.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from slurmplugins.slurm.sacct import new_token
from tests.slurm import joined_site, rack_files
from tests.slurm.joined_site import site as lab_with_join
from tests.slurm.rack_files import DOWN, UP
from tests.slurm.waiting import until
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.report import Key
from toolkit.accounting.segments import report_of
from toolkit.commands.controller import controller
from toolkit.commands.report_sources import sources_of
from toolkit.config import load
from toolkit.deploy.session import connected
from toolkit.usage import close_days, closed_store
from toolkit.usage.cluster_store import ClusterStore, cluster_folder
from toolkit.usage.stored_records import StoredRecords

DAY = 86_400
pytestmark = [pytest.mark.machines, pytest.mark.timeout(1800, func_only=True)]


@pytest.fixture(scope="module")
def site(cloud, state):
    with lab_with_join(cloud, state / "lab") as made:
        yield made


@pytest.fixture(scope="module")
def files_before(site):
    """The controller's files before anything of the join."""
    return site.lab.files()


@pytest.fixture(scope="module")
def rack_job(site):
    """A job on the rack of main, from before the join on."""
    job = site.submit("--partition=main", "--exclusive", "--time=1:00:00", "--wrap=sleep 3600")
    until("the rack's job runs", lambda: site.state(job) == "RUNNING")
    return site.job(job)


@pytest.fixture(scope="module")
def joined(site, files_before, rack_job):
    """The site after `toolkit join apply`."""
    assert "+Include toolkit-burst.conf" in site.toolkit("join", "plan", code=2)
    assert "adds one line to /etc/slurm/slurm.conf" in site.toolkit("join", "apply", code=3)
    assert site.lab.files() == files_before
    site.toolkit("join", "apply", "--yes")
    assert "no changes" in site.toolkit("join", "plan")
    assert_untouched(site, rack_job)
    return site


def assert_untouched(site, rack_job) -> None:
    """Look whether the racks' job runs as it did."""
    now = site.job(str(rack_job["job_id"]))
    for key in ("job_state", "start_time", "restart_cnt", "nodes"):
        assert now[key] == rack_job[key], key


def test_what_clashes_with_the_site_is_refused_with_its_line(cloud, site, files_before):
    document = joined_site.settings(cloud, site.lab)
    del document["prices"]
    pool = document["pools"]["cloud"]
    document["pools"] = dict.fromkeys(("rack", "queue1-dy-compute", "queue2-st-gpu"), pool)
    document["partitions"] = {"main": {"pools": ["rack"]}, "queue1": {"pools": ["queue2-st-gpu"]}}
    document["partitions"]["burst"] = {"pools": ["queue1-dy-compute"]}
    document["burst"]["mian"] = document["burst"].pop("main")
    path = site.path.with_name("clash.yaml")
    joined_site.write(path, document)
    text = joined_site.JoinedSite(site.lab, path).toolkit("join", "plan", code=1)
    nodes, conf = "/etc/slurm/racks.conf", "/etc/slurm/slurm.conf"
    for place, message in (
        (f"{nodes}:2", "the site has nodes rack-001, as pool rack has"),
        (f"{nodes}:3", "the site has nodes rack-002, as pool rack has"),
        (f"{nodes}:4", "the site has nodes rack-003, as pool rack has"),
        (f"{nodes}:5", "the site has nodes queue1-dy-compute-1, queue1-dy-compute-2: pool queue1-"),
        (f"{nodes}:5", "the site has nodes of ParallelCluster, such as queue1-dy-compute-1: its"),
        (f"{conf}:{line_of('PartitionName=main')}", "the site has a partition main"),
        (f"{conf}:{line_of('PartitionName=queue1')}", "the site has a partition queue1"),
        (f"{path}:{line_of('  mian:', path.read_text())}", "burst.mian: the site has no partition"),
    ):
        assert f"conflict: {place}: {message}" in text
    assert site.lab.files() == files_before


def line_of(start: str, text: str = rack_files.SLURM_CONF) -> int:
    """Return the number of the only line that begins so."""
    (number,) = (n for n, line in enumerate(text.splitlines(), 1) if line.startswith(start))
    return number


def test_jobs_run_in_the_cloud_and_on_racks_that_the_labs_own_program_wakes(joined):
    lab = joined.lab
    until("the lab suspends its racks by itself", lambda: lab.node_states("green") == {"idle~"})
    assert any(call.startswith(f"{DOWN} rack-") for call in lab.power_calls())
    own_words = "srun hostname; [ $(id -un):$(id -u) = ada:2001 ]"
    cloud_job = joined.submit("--partition=burst", "--nodes=2", f"--wrap={own_words}")
    green_job = joined.submit("--partition=green", "--nodes=2", "--wrap=srun true")
    until("the job on racks", lambda: joined.state(green_job) == "COMPLETED")
    until("the job in the cloud", lambda: joined.state(cloud_job) == "COMPLETED")
    assert joined.accounted(cloud_job, "NodeList,ExitCode") == "cloud-[001-002]|0:0"
    assert joined.accounted(green_job, "NodeList,ExitCode") == "rack-[002-003]|0:0"
    calls = lab.power_calls()  # its racks may sleep again by now
    resume_file = json.loads(calls[calls.index(f"{UP} rack-[002-003]") + 1])
    assert resume_file["all_nodes_resume"] == "rack-[002-003]"
    assert [job["nodes_resume"] for job in resume_file["jobs"]] == ["rack-[002-003]"]
    assert "healthy" in joined.toolkit("status")
    assert "cloud-001" in joined.toolkit("nodes", "--all")


def test_the_governor_lets_a_job_go_by_age_and_keeps_another_by_its_budget(joined, rack_job):
    dear = joined.submit("--time=1:00:00", "--account=biology", "--wrap=true")
    too_long = joined.submit("--time=4:00:00", "--wrap=true")
    # sbatch refuses it for main alone, which has one node.
    too_big = joined.submit("--partition=main,burst", "--nodes=2", "--wrap=srun true")
    aged = joined.submit("--time=10", "--wrap=true")
    # Racks would never take it, so it waits for nothing.
    assert joined.govern(too_long)["partition"] == "main,burst"
    until("the job is old enough", lambda: joined.govern(aged)["partition"] != "main")
    for job in (aged, too_long, too_big):
        until("the job that burst", lambda job=job: joined.state(job) == "COMPLETED")
        assert joined.accounted(job, "Partition,NodeList").startswith("burst|cloud-")
    assert "toolkit:burst age: may start in burst" in joined.job(aged)["admin_comment"]
    stays = joined.govern(dear)
    assert (stays["job_state"], stays["partition"]) == (["PENDING"], "main")
    assert "toolkit:burst stays, over-budget" in stays["admin_comment"]
    rows = [line.split()[:3] for line in joined.toolkit("burst", "status").splitlines()]
    assert [dear, "biology", "main"] in rows
    assert "burst: stays" in joined.toolkit("why", dear)
    joined.lab.run("scancel", dear)
    assert_untouched(joined, rack_job)


def test_a_restart_of_slurmctld_touches_no_running_job(joined, rack_job):
    cloud_job = joined.submit("--partition=burst", "--time=10", "--wrap=sleep 20")
    until("the cloud's job runs", lambda: joined.state(cloud_job) == "RUNNING")
    before = joined.job(cloud_job)
    joined.lab.run("systemctl", "restart", "slurmctld")
    until("slurmctld answers", lambda: joined.lab.node_states("main"))
    assert joined.job(cloud_job)["start_time"] == before["start_time"]
    assert_untouched(joined, rack_job)
    until("the cloud's job ends", lambda: joined.state(cloud_job) == "COMPLETED")
    assert joined.job(cloud_job)["restart_cnt"] == 0


def test_racks_wake_and_run_while_ec2_does_not_answer(joined, rack_job):
    lab = joined.lab
    until(
        "all nodes sleep", lambda: lab.node_states("green") | lab.node_states("burst") == {"idle~"}
    )
    lab.set_aws(reachable=False)
    try:
        cloud_job = joined.submit("--partition=burst", "--nodes=2", "--wrap=srun true")
        green_job = joined.submit("--partition=green", "--nodes=2", "--wrap=srun true")
        until("the job on racks", lambda: joined.state(green_job) == "COMPLETED")
        assert not joined.instances()
        assert_untouched(joined, rack_job)
    finally:
        lab.set_aws(reachable=True)
    until("the job in the cloud", lambda: joined.state(cloud_job) == "COMPLETED")


def test_a_day_of_racks_and_cloud_is_closed_from_its_records(joined, tmp_path, monkeypatch):
    """Close the day by a clock that stands behind its end."""
    monkeypatch.setenv("TOOLKIT_USAGE_STORE", str(tmp_path))
    joined.lab.run("systemctl", "start", "slurm-records.service")
    assert "nothing to close" in joined.toolkit("usage", "close")
    config = load(joined.path)
    with connected(config) as clients:
        sources = sources_of(joined.path, config, clients, controller(clients, config))
    store = ClusterStore(cluster_folder(config.cluster, tmp_path))
    sources = replace(sources, records=StoredRecords(store))
    later = int(time.time()) + 2 * DAY
    planned = close_days.plan(store, sources, later)
    closing = {"now": later, "token": new_token, "status": lambda _: "estimated"}
    assert list(close_days.execute(store, sources, planned, **closing))
    (segment, *_) = closed_store.segments(store, closed_store.read(store), planned.new_days[:1])
    report = report_of(config.cluster, [segment], later, CostPolicy())
    usd = {row.key_values[0]: row.total for row in report.groups([Key.PARTITION])}
    assert usd["burst"] > 0
    assert usd["main"] > 0
    assert report.racks_net > 0
    assert "racks: " in joined.toolkit("report", "--since", "1h")


def test_the_site_is_left_as_it_was(joined, files_before, rack_job):
    job = str(rack_job["job_id"])
    joined.toolkit("join", "remove", code=3)
    # slurmctld would fail the rack's job, if that named our partition.
    assert "partition-in-use" in joined.toolkit("join", "remove", "--yes", code=1)
    assert_untouched(joined, rack_job)
    joined.lab.run("scancel", job)
    until("the rack's job ends", lambda: joined.state(job) == "CANCELLED")
    joined.toolkit("join", "remove", "--yes")
    assert joined.lab.files() == files_before
    assert joined.lab.run("cat", "/etc/slurm/slurm.conf") == rack_files.SLURM_CONF
    running = joined.lab.run("scontrol", "show", "config")
    assert f"ResumeProgram           = {UP}" in running
    assert "burst" not in joined.lab.run("sinfo")
