"""A joined site while EC2 is throttled and away, and while its Slurm is upgraded.

They take too long for `make test`, and are run by hand (docs/testing.md):

    .venv/bin/python -m pytest tests/slurm/long_join.py

TOOLKIT_TEST_MINUTES (10) says how long EC2 is not there; half as long it throttles before.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import pytest

from tests.slurm import rack_files
from tests.slurm.conftest import toolkit
from tests.slurm.joined_site import site as lab_with_join
from tests.slurm.rack_files import GREEN, SLURMCTLD_LOG, UPGRADE
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(7200, func_only=True)]
MINUTES = float(os.environ.get("TOOLKIT_TEST_MINUTES", "10"))
log = logging.getLogger(__name__)
SUITE = "testing"  # Debian's, with Slurm 26.05
LATE = 2  # seconds: sacct's times are whole seconds
LATE_POWER_UP = 10  # seconds, as the CPU of the test host is shared; an EC2 that is away costs more
ALLOCATED = re.compile(r"\[(\S+)\] sched: Allocate JobId=(\d+) .*Partition=green")
ANSWERED = re.compile(r"\[(\S+)\] Node (\S+) now responding")


@pytest.fixture(scope="module")
def site(cloud, state):
    with lab_with_join(cloud, state / "lab", SUITE, jobscripts=True) as made:
        yield made


@pytest.fixture(scope="module")
def files_before(site):
    """The controller's files before anything of the join."""
    return frozenset(site.lab.files())


@pytest.fixture(scope="module")
def joined(site, files_before):
    began = time.monotonic()
    site.toolkit("join", "apply", "--yes")
    log.warning("join apply: %.0f s", time.monotonic() - began)
    return site


@pytest.fixture(scope="module")
def of_the_packages():
    """The lines of `Lab.files` that the upgrade changed."""
    return set()


@dataclass(frozen=True)
class Waits:
    """The seconds that jobs of main waited, and that green racks took to power up."""

    name: str
    main: list[float]
    green: list[float]

    def row(self) -> str:
        """Return the figures as a line of a table."""
        cells = [
            f"{len(values)} jobs, mean {sum(values) / len(values):.1f} s, most {max(values):.1f} s"
            for values in (self.main, self.green)
        ]
        return f"| {self.name} | {cells[0]} | {cells[1]} |"


def measure(joined, name: str, seconds: float, cloud_jobs: list[str] | None = None) -> Waits:
    """Submit jobs, and return how long those of racks waited.

    With `cloud_jobs`, some are for the cloud, and their numbers are added there.
    """
    end, number = time.monotonic() + seconds, 0
    jobs: dict[str, list[str]] = {"main": [], "green": []}
    while time.monotonic() < end:
        jobs["main"].append(joined.submit("--time=5", "--wrap=true"))
        if number % 12 == 0:  # a minute: the green racks sleep again meanwhile
            jobs["green"].append(
                joined.submit("--partition=green", "--nodes=2", "--time=5", "--wrap=srun true")
            )
        if cloud_jobs is not None and number % 12 == 6:
            cloud_jobs.append(joined.submit("--partition=burst", "--time=5", "--wrap=true"))
        number += 1
        time.sleep(5)
    for partition, numbers in jobs.items():
        for job in numbers:
            until(f"{partition}'s job", lambda job=job: ended(joined, job))
    power_ups = seconds_of_power_ups(joined.lab.run("cat", SLURMCTLD_LOG))
    green = [power_ups[job] for job in jobs["green"] if job in power_ups]
    return Waits(name, [seconds_waited(joined, job) for job in jobs["main"]], green)


def ended(joined, job: str) -> bool:
    """Return whether the accounting has the job's end. Raises if it failed."""
    state = joined.accounted(job, "State")
    assert state in {"", "PENDING", "RUNNING", "COMPLETED"}, (job, state)
    return state == "COMPLETED"


def seconds_of_power_ups(log_text: str) -> dict[str, float]:
    """Return the seconds that green racks took to power up, by job.

    They begin with slurmctld's choice of racks, and end when the last one answers. Without a
    PrologSlurmctld, slurmctld then starts the job within 30 seconds.
    """
    seconds: dict[str, float] = {}
    chosen: re.Match[str] | None = None
    for line in log_text.splitlines():
        chosen = ALLOCATED.match(line) or chosen
        answered = ANSWERED.match(line)
        if chosen and answered and answered[2] in GREEN:
            times = [datetime.fromisoformat(match[1]) for match in (chosen, answered)]
            seconds[chosen[2]] = (times[1] - times[0]).total_seconds()
    return seconds


def seconds_waited(joined, job: str) -> int:
    """Return the seconds from a job's submit to its start."""
    columns = joined.lab.run(
        *("env", "SLURM_TIME_FORMAT=%s", "sacct", "-nXP", "-j", job, "-o", "Submit,Start")
    )
    submitted, started = columns.strip().split("|")
    return int(started) - int(submitted)


def test_the_job_scripts_of_the_image_run_in_the_cloud(joined):
    words = ("--partition=burst", "--time=10", "--wrap=bash /shared/jobscripts/smoke.sbatch")
    job = joined.submit(*words, user="ada")
    until("the job's end", lambda: joined.state(job) not in {"PENDING", "RUNNING", "CONFIGURING"})
    assert joined.accounted(job, "State,ExitCode") == "COMPLETED|0:0"


def test_no_job_of_racks_waits_for_ec2(joined):
    cloud_jobs: list[str] = []
    calm = measure(joined, "EC2 answers", 90)
    toolkit("local", "throttle", "*", "--seconds", str(MINUTES * 30))
    throttled = measure(joined, "EC2 throttles every call", MINUTES * 30, cloud_jobs)
    toolkit("local", "throttle", "--clear")
    joined.lab.set_aws(reachable=False)
    try:
        away = measure(joined, "EC2 does not answer", MINUTES * 60, cloud_jobs)
        at_the_end = Counter(joined.accounted(job, "State") for job in cloud_jobs)
    finally:
        joined.lab.set_aws(reachable=True)
    for item in (calm, throttled, away):
        log.warning("%s", item.row())
    log.warning("jobs for the cloud at the end: %s", at_the_end)
    for bad in (throttled, away):
        assert max(bad.main) <= max(calm.main) + LATE, bad
        assert max(bad.green) <= max(calm.green) + LATE_POWER_UP, bad
    job = joined.submit("--partition=burst", "--nodes=2", "--wrap=srun true")
    began = time.monotonic()
    until("a job in the cloud", lambda: joined.state(job) == "COMPLETED")
    log.warning("a job in the cloud after that: %.0f s", time.monotonic() - began)
    for job in cloud_jobs:
        until("the others", lambda job=job: joined.accounted(job, "State") == "COMPLETED")
    log.warning("all %d jobs for the cloud ended well", len(cloud_jobs))


def test_the_sites_slurm_is_upgraded_under_the_join(joined, of_the_packages):
    lab = joined.lab
    files = frozenset(lab.files())
    long = [
        joined.submit(f"--partition={name}", "--mem=100", "--time=2:00:00", "--wrap=sleep 3600")
        for name in ("main", "burst")
    ]
    for job in long:
        until("the job runs", lambda job=job: joined.state(job) == "RUNNING")
    before = [joined.job(job) for job in long]
    old = lab.run("scontrol", "--version").strip()
    began = time.monotonic()
    upgrade(lab, "ctl")
    until("slurmctld answers", lambda: lab.node_states("main"))
    took = time.monotonic() - began
    new = lab.run("scontrol", "--version").strip()
    log.warning("%s to %s in %.0f s", old, new, took)
    assert new != old
    of_the_packages |= files ^ frozenset(lab.files())
    assert_works(joined, long, before)
    for rack in ("rack-001", *GREEN):
        upgrade(lab, rack)
    until("the racks answer", lambda: lab.node_states("main") <= {"mix", "alloc"})
    assert_works(joined, long, before)
    for job in long:
        lab.run("scancel", job)


def test_the_upgraded_site_is_left_as_it_was(joined, files_before, of_the_packages):
    lab = joined.lab
    until("no job runs", lambda: not lab.run("squeue", "--noheader").strip())
    began = time.monotonic()
    joined.toolkit("join", "remove", "--records", "--yes")
    log.warning("join remove: %.0f s", time.monotonic() - began)
    assert not (files_before ^ frozenset(lab.files())) - of_the_packages
    assert lab.run("cat", "/etc/slurm/slurm.conf") == rack_files.SLURM_CONF
    assert "burst" not in lab.run("sinfo")
    job = joined.submit("--partition=green", "--nodes=2", "--wrap=srun true")
    until("a job in green", lambda: joined.state(job) == "COMPLETED")


def upgrade(lab, machine: str) -> None:
    """Install the next Slurm's packages, as the site's admin does."""
    install = f"cd {UPGRADE} && dpkg --force-confold --force-unsafe-io -i *.deb"
    lab.run("env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", install, on=machine)


def assert_works(joined, long: list[str], before: list[dict]) -> None:
    """Assert that the long jobs ran on, and that others run everywhere."""
    for job, record in zip(long, before, strict=True):
        now = joined.job(job)
        assert (now["job_state"], now["start_time"]) == (["RUNNING"], record["start_time"])
    assert "no changes" in joined.toolkit("join", "plan")
    assert "healthy" in joined.toolkit("status")
    for words in (["main"], ["green", "--nodes=2"], ["burst", "--nodes=2"]):
        partition, *more = words
        job = joined.submit(f"--partition={partition}", "--mem=100", *more, "--wrap=srun true")
        until(f"a job in {partition}", lambda job=job: joined.state(job) == "COMPLETED")
