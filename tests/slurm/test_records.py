"""Records of a real cluster: its report is the same with the head's answer and without.

The window ends before the records are written, so both reports are of the same facts. That holds
only while nothing else goes on, so these tests run beside no other.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from slurmplugins.config import paths
from slurmplugins.head.record_state import FILE
from slurmplugins.model import records
from slurmplugins.slurm.sacct import new_token
from tests.slurm.conftest import toolkit
from tests.slurm.instances import LIVE, instances_of_pool
from tests.slurm.training_job import submit
from tests.slurm.waiting import until
from toolkit.accounting import periods
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.charges import Component
from toolkit.accounting.collect import Sources, collect
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.days import day_of
from toolkit.accounting.report import Key
from toolkit.bill.history import NO_BILLS
from toolkit.config import load
from toolkit.deploy import names
from toolkit.deploy.session import Clients
from toolkit.errors import HeadNotReady
from toolkit.statements import changes, issue
from toolkit.statements.cluster_periods import ClusterPeriods
from toolkit.statements.settings import settings_of
from toolkit.usage import close_days
from toolkit.usage.cluster_store import ClusterStore
from toolkit.usage.read_records import Source, read_new
from toolkit.usage.stored_records import StoredRecords

pytestmark = [pytest.mark.machines, pytest.mark.timeout(1800, func_only=True)]
DAY = 86_400
BEGUN = "CONFIGURING,RUNNING,SUSPENDED,COMPLETING"
POOLS = ("farm", "gpu", "rack")
NAME = "a|b\n42\x1f7"  # what could forge a row
PROJECT = "Tokens"  # Slurm writes it in small letters


class NoHead:
    """A head that answers nobody."""

    def run(self, argv, *, timeout=60):
        raise HeadNotReady("head node i-0 is stopped")


@pytest.fixture(scope="module")
def sources(cluster):
    """The sources of a report, without a head and with records."""
    config = load(cluster.config)
    clients = Clients(config)
    return Sources(
        cluster=config.cluster,
        region=config.aws.region,
        bucket=names.bucket(config, clients.account),
        ec2=clients.client("ec2"),
        s3=clients.client("s3"),
        runner=NoHead(),
        records_bucket=names.backup_bucket(config, clients.account),
    )


@pytest.fixture(scope="module")
def quote(cluster, tmp_path_factory):
    """The quote of that job, made before it."""
    script = tmp_path_factory.mktemp("quote") / "sleep.sbatch"
    script.write_text("#!/bin/bash\nsleep 3\n")
    return json.loads(cluster.toolkit("quote", "--json", "--time=10", str(script)).stdout)


@pytest.fixture(scope="module")
def job(cluster, quote):
    """A job that ended, whose row slurmdbd has."""
    options = ("--output=/dev/null", f"--job-name={NAME}", f"--wckey={PROJECT}")
    job = submit(cluster, *options, "--wrap=sleep 3")
    assert job.ended() == {"COMPLETED"}
    argv = ("sacct", "--allocations", "--noheader", "--format=End", f"--jobs={job.number}")
    until("its end in accounting", lambda: "T" in cluster.run(*argv))
    return job


@pytest.fixture(scope="module")
def end(cluster, job):
    """The end of the reports' window; the records are written then.

    All is over. A job that starts, or an instance that just ended, has other values a moment
    later. Then the two reports would be of different facts.
    """

    def all_is_over() -> bool:
        jobs = cluster.run("squeue", "--noheader", f"--states={BEGUN}").strip()
        return not jobs and not any(instances_of_pool(cluster, pool, *LIVE) for pool in POOLS)

    until("no job and no instance", all_is_over)
    cluster.run("systemctl", "start", "slurm-reconcile.service")  # it writes the last ends
    end = int(time.time())
    until("the next second", lambda: time.time() > end + 1)
    cluster.run("systemctl", "start", "slurm-records.service", timeout=900)
    return end


def report(sources, runner, bucket, end):
    parts = {"runner": runner, "records_bucket": bucket}
    fields = {name: getattr(sources, name) for name in Sources.__dataclass_fields__}
    window = Window(end - DAY, end)
    return collect(Sources(**fields | parts), window, int(time.time()), "t0k3nXYZ", Policy())


def test_a_report_of_records_has_the_sums_of_the_heads_own_answer(cluster, sources, job, end):
    live = report(sources, cluster.head, f"{sources.bucket}-none", end)
    recorded = report(sources, NoHead(), sources.records_bucket, end)
    assert recorded.components() == live.components()

    def rows(made):
        return {row.key_values: dict(row.micro) for row in made.groups([Key.JOB])}

    assert rows(recorded) == rows(live)
    assert (job.number,) in rows(recorded)
    (attempt,) = [item for item in recorded.attempts.values() if item.job_id == job.number]
    assert attempt.name == NAME
    assert attempt.project == PROJECT.lower()


def test_a_quote_is_what_the_job_then_cost(cluster, quote, sources, job, end):
    """Hold the price of the job's instance to its work."""
    made = report(sources, cluster.head, sources.records_bucket, end)
    (attempt,) = [item for item in made.attempts.values() if item.job_id == job.number]
    (row,) = [row for row in made.groups([Key.JOB]) if row.key_values == (job.number,)]
    (instance,) = [
        item
        for item in made.instances.values()
        if item.node in attempt.nodes and item.launched <= attempt.started < item.ended
    ]
    (offer,) = [
        offer
        for offer in quote["offers"]
        if (offer["type"], offer["zone"], offer["lifecycle"])
        == (instance.instance_type, instance.zone, instance.lifecycle)
    ]
    work = float(offer["usd_per_hour"]) * (attempt.ended - attempt.started) / 3600
    assert row.micro[Component.WORK] == pytest.approx(work * 1e6, rel=0.02)


def test_a_second_run_repeats_no_old_time_and_replaces_nothing(cluster, sources, end):
    def pages():
        listed = sources.s3.list_objects_v2(Bucket=sources.records_bucket, Prefix=records.SACCT)
        return {item["Key"]: item["ETag"] for item in listed["Contents"]}

    before = pages()
    cluster.run("systemctl", "start", "slurm-records.service", timeout=900)
    after = pages()
    assert before.items() <= after.items()
    (new_key, *more) = after.keys() - before.keys()
    assert more == []
    key = records.parse_key(new_key)
    assert key.until - key.since < 2 * 3600


def test_status_tells_how_far_the_records_reach(cluster, end):
    status = json.loads(cluster.toolkit("status", "--json", may_fail=True).stdout)
    assert status["records"]["attempts"] >= end
    assert status["records"]["error"] == ""
    assert status["services"]["slurm-records.timer"] == "active"


def test_prices_of_spot_offerings_are_kept_by_day(sources, end):
    listed = sources.s3.list_objects_v2(Bucket=sources.records_bucket, Prefix=records.PRICES)
    assert listed["KeyCount"] >= 10


def test_the_head_asks_cloudwatch_by_its_own_role(cluster, end):
    """See which day is next: as a rule none is over."""
    state = json.loads(cluster.run("cat", str(paths.STATE / FILE)))
    assert end - 14 * DAY <= state["next_metric_day"] <= end
    calls = json.loads(toolkit("local", "rights", "--json").stdout)["calls"]
    asked = [call for call in calls if call["action"] == "cloudwatch:GetMetricData"]
    assert asked
    assert all(call["allowed"] for call in asked)
    assert all("HeadRole" in call["role"] for call in asked)


def test_a_month_of_real_jobs_is_closed_and_has_its_statement(cluster, sources, job, end, tmp_path):
    """Close the month by a clock that stands at its end."""
    store = ClusterStore(tmp_path / "store")
    source = Source(sources.s3, sources.records_bucket, sources.cluster, sources.region)
    read_new(store, source, end)
    month = periods.month_of(day_of(end))
    later = month.window.until
    stored = replace(sources, records=StoredRecords(store))
    planned = close_days.plan(store, stored, later)
    closing = {"now": later, "token": new_token, "status": lambda _: "estimated"}
    assert list(close_days.execute(store, stored, planned, **closing))

    def current():
        settings = settings_of(load(cluster.config))
        return ClusterPeriods(store, settings, CostPolicy(), NO_BILLS, later, "a test")

    changes.review(current(), month)
    changes.approve(current(), month, (), "a test looked at it", everything=True)
    closed = changes.close(current(), month)
    report = current().report(month)
    assert report.net == closed.net > 0
    rows = {row.key_values: row.total for row in report.groups([Key.PROJECT, Key.JOB])}
    assert rows[PROJECT.lower(), job.number] > 0
    account = next(item.account for item in report.attempts.values() if item.job_id == job.number)
    files = issue.files(current(), month)
    page = files[f"{account}.html"].decode()
    assert f"<td>{PROJECT.lower()}</td>" in page
    assert page == current().closed[month.name].document(f"{account}.html").decode()
