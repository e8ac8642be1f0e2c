"""Cloud nodes in the Slurm of a site that the toolkit did not build: joined, used and removed.

The tests are one history, in this order. What takes longer is in long_join.py.
"""

from __future__ import annotations

import json

import pytest

from tests.slurm import joined_site, rack_files
from tests.slurm.joined_site import site as lab_with_join
from tests.slurm.rack_files import DOWN, UP
from tests.slurm.waiting import until

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


def test_names_that_the_site_has_are_refused_with_its_line(cloud, site, files_before):
    document = joined_site.settings(cloud, site.lab)
    document["pools"]["rack"] = document["pools"].pop("cloud")
    document["partitions"] = {"main": {"pools": ["rack"]}}
    del document["burst"]
    path = site.path.with_name("clash.yaml")
    joined_site.write(path, document)
    text = joined_site.JoinedSite(site.lab, path).toolkit("join", "plan", code=1)
    for name, number in (("rack-001", 2), ("rack-002", 3), ("rack-003", 4)):
        line = f"conflict: /etc/slurm/racks.conf:{number}: the site has nodes {name}, as pool rack"
        assert line in text
    lines = rack_files.SLURM_CONF.splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if line.startswith("PartitionName=main"))
    assert f"conflict: /etc/slurm/slurm.conf:{number}: the site has a partition main" in text
    assert site.lab.files() == files_before


def test_jobs_run_in_the_cloud_and_on_racks_that_the_labs_own_program_wakes(joined):
    lab = joined.lab
    until("the lab suspends its racks by itself", lambda: lab.node_states("green") == {"idle~"})
    assert any(call.startswith(f"{DOWN} rack-00") for call in lab.power_calls())
    own_words = "srun hostname; [ $(id -un):$(id -u) = ada:2001 ]"
    cloud_job = joined.submit("--partition=burst", "--nodes=2", f"--wrap={own_words}")
    green_job = joined.submit("--partition=green", "--nodes=2", "--wrap=srun true")
    until("the job on racks", lambda: joined.state(green_job) == "COMPLETED")
    until("the job in the cloud", lambda: joined.state(cloud_job) == "COMPLETED")
    assert joined.accounted(cloud_job, "NodeList,ExitCode") == "cloud-[001-002]|0:0"
    assert joined.accounted(green_job, "NodeList,ExitCode") == "rack-[002-003]|0:0"
    call, text = lab.power_calls()[-2:]
    assert call == f"{UP} rack-[002-003]"
    resume_file = json.loads(text)
    assert resume_file["all_nodes_resume"] == "rack-[002-003]"
    assert [job["nodes_resume"] for job in resume_file["jobs"]] == ["rack-[002-003]"]
    assert "healthy" in joined.toolkit("status")
    assert "cloud-001" in joined.toolkit("nodes", "--all")


def test_the_governor_lets_a_job_go_by_age_and_keeps_another_by_its_budget(joined, rack_job):
    dear = joined.submit("--time=1:00:00", "--account=biology", "--wrap=true")
    too_long = joined.submit("--time=4:00:00", "--wrap=true")
    aged = joined.submit("--time=10", "--wrap=true")
    # Racks would never take it, so it waits for nothing.
    assert joined.govern(too_long)["partition"] == "main,burst"
    until("the job is old enough", lambda: joined.govern(aged)["partition"] != "main")
    for job in (aged, too_long):
        until("the job that burst", lambda job=job: joined.state(job) == "COMPLETED")
        assert joined.accounted(job, "Partition,NodeList").startswith("burst|cloud-00")
    assert "toolkit:burst age: may start in burst" in joined.job(aged)["admin_comment"]
    stays = joined.govern(dear)
    assert (stays["job_state"], stays["partition"]) == (["PENDING"], "main")
    assert "toolkit:burst stays, over-budget" in stays["admin_comment"]
    assert f"{dear}  biology  main" in joined.toolkit("burst", "status")
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
