"""`toolkit report` against the local cloud's invoice, instance by instance.

The real programs launch, terminate and write the instance ledger; the local cloud meters its own
events. The two share no code and no record. Time stands still but for what a test skips. So a pass
sees an instance in the second in which it begins to run, and the two agree to the micro-dollar.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.model import hostlist
from slurmplugins.slurm import sacct as call
from tests.contract.engine.simulated_cluster import SimulatedCluster, running_cluster
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.collect import Sources, collect
from toolkit.accounting.money import usd
from toolkit.local.aws.spot_prices import PERIOD, spot_price
from toolkit.local.billing import invoice
from toolkit.local.billing.rates import LocalRates
from toolkit.local.billing.usage_log import Kind, UsageLog
from toolkit.local.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from toolkit.accounting.report import Report
    from toolkit.local.billing.invoice import Invoice

HOUR = 3600
MICRO = Decimal("0.000001")
GPU = hostlist.expand("gpu-[001-004]")
CPU = hostlist.expand("cpu-1")


class HeadWithoutJobs:
    """A head node whose sacct has no rows: what instances cost does not depend on them."""

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        assert timeout > 0
        if argv[-1] == "--helpformat":
            return " ".join((*call.REQUIRED, *call.FREE_TEXT))
        return '{"nodes": []}' if "scontrol" in argv else ""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    """A cluster whose clock stands half an hour before spot prices change."""
    with running_cluster(tmp_path, speed=0.0) as one:
        one.skip(PERIOD - (one.clock.now() + HOUR / 2) % PERIOD)
        while spot_price_after(one, 0) == spot_price_after(one, HOUR):
            one.skip(PERIOD)
        yield one


def spot_price_after(cluster: SimulatedCluster, seconds: float) -> str:
    return spot_price("g5.xlarge", "us-east-1a", cluster.clock.now() + seconds)


def launch(cluster: SimulatedCluster, job: int, nodes: Any) -> list[str]:
    """Start a job on its nodes; return the ids of their instances.

    A pass has seen these then.
    """
    cluster.slurm.start(job, nodes)
    assert cluster.resume() == 0
    cluster.boot()
    assert cluster.reconcile() == 0
    return [item.id for item in cluster.live() if item.node in nodes]


def end(cluster: SimulatedCluster, job: int, nodes: Any) -> None:
    """End a job, and let slurmctld power its nodes down."""
    cluster.slurm.finish(job)
    cluster.slurm.power_down(nodes)
    cluster.slurm.tick()
    assert cluster.suspend() == 0
    cluster.local.settle()


def interrupt(cluster: SimulatedCluster, instance_id: str) -> None:
    control = Client(cluster.local.cloud.options.port)
    control.post("interrupt", {"target": instance_id, "notice": 0})
    cluster.turn()
    cluster.local.settle()
    assert cluster.reconcile() == 0


def pass_hours(cluster: SimulatedCluster, hours: float) -> None:
    cluster.skip(hours * HOUR)
    cluster.local.settle()


def invoice_and_report(cluster: SimulatedCluster) -> tuple[Invoice, Report]:
    """Return both for the whole time until now."""
    now = int(cluster.clock.now())
    events = UsageLog(cluster.local.cloud.options.state).read()
    instances = [event for event in events if event.kind is Kind.INSTANCE]
    since = min(event.at for event in instances)
    made = invoice.make(instances, LocalRates(), since=since, until=now)
    sources = Sources(
        cluster="demo",
        region="us-east-1",
        bucket="demo-bucket",
        ec2=cluster.local.client("ec2"),
        s3=cluster.local.client("s3"),
        runner=HeadWithoutJobs(),
    )
    return made, collect(sources, Window(since, now), now, "token", Policy())


def differences(made: Invoice, report: Report) -> dict[str, Decimal]:
    """Return what the report has more than the invoice, by instance.

    A micro-dollar is no difference.
    """
    billed = made.by_resource()
    reported = {cost.instance_id: usd(cost.net) for cost in report.costs}
    all_ids = billed.keys() | reported.keys()
    by_id = {key: reported.get(key, Decimal(0)) - billed.get(key, Decimal(0)) for key in all_ids}
    return {key: difference for key, difference in by_id.items() if abs(difference) > MICRO}


def notes_on_cost(report: Report) -> list[str]:
    """Return all notes but the one on a sacct without rows."""
    return [note for note in report.notes if "sacct has no job on it" not in note]


def test_two_instances_cost_the_same_in_report_and_invoice(cluster: SimulatedCluster):
    ids = {*launch(cluster, 7, GPU[:1]), *launch(cluster, 8, CPU)}
    pass_hours(cluster, 0.25)
    end(cluster, 7, GPU[:1])
    end(cluster, 8, CPU)
    cluster.reconcile()
    made, report = invoice_and_report(cluster)
    assert made.by_resource().keys() == ids
    assert made.total > Decimal("0.05")
    assert differences(made, report) == {}
    assert notes_on_cost(report) == []


def test_interruptions_before_and_after_the_first_hour_and_a_price_that_changed(
    cluster: SimulatedCluster,
):
    (early,), (late,), (living,) = (
        launch(cluster, job, GPU[number : number + 1]) for number, job in enumerate((7, 8, 9))
    )
    pass_hours(cluster, 0.9)  # the price changed meanwhile
    interrupt(cluster, early)
    pass_hours(cluster, 0.9)
    interrupt(cluster, late)
    made, report = invoice_and_report(cluster)
    billed = made.by_resource()
    assert billed[early] == 0
    assert billed[late] > Decimal("0.3")
    assert billed[living] > 0
    assert len({line.rate for line in made.lines if line.resource_id == late}) == 2
    assert differences(made, report) == {}
    assert notes_on_cost(report) == []


def test_a_head_that_was_away_while_instances_ended(cluster: SimulatedCluster):
    first, second = launch(cluster, 7, GPU[:2])
    pass_hours(cluster, 0.5)
    end(cluster, 7, GPU[:2])
    pass_hours(cluster, 0.5)  # no pass: EC2 still lists them
    assert cluster.reconcile() == 0
    made, report = invoice_and_report(cluster)
    assert made.by_resource().keys() == {first, second}
    assert differences(made, report) == {}


def test_an_end_that_ec2_forgot_while_the_head_was_away_is_told_in_a_note(
    cluster: SimulatedCluster,
):
    (instance_id,) = launch(cluster, 7, GPU[:1])
    pass_hours(cluster, 0.5)
    end(cluster, 7, GPU[:1])
    pass_hours(cluster, 1.5)
    cluster.local.until(lambda: not cluster.local.instances())
    assert cluster.reconcile(3) == 0
    made, report = invoice_and_report(cluster)
    assert differences(made, report).keys() == {instance_id}
    assert any(instance_id in note and "end not seen" in note for note in report.notes)


def test_an_instance_that_failed_in_its_launch_is_in_no_bill(cluster: SimulatedCluster):
    class NoMachineError(RuntimeError):
        pass

    def refuse(*_: Any, **__: Any) -> None:
        raise NoMachineError

    start, cluster.local.driver.start = cluster.local.driver.start, refuse
    cluster.slurm.start(7, GPU[:1])
    assert cluster.resume() == 0
    cluster.turn()
    cluster.local.settle()
    cluster.local.driver.start = start
    assert cluster.reconcile() == 0
    (failed,) = cluster.instances()
    assert failed.end_code == "Server.InternalError"
    made, report = invoice_and_report(cluster)
    assert made.lines == ()
    assert differences(made, report) == {}


def test_a_stop_that_no_pass_saw_begins_a_minimum_anew_and_is_noted(cluster: SimulatedCluster):
    (instance_id,) = launch(cluster, 8, CPU)
    ec2 = cluster.local.client("ec2")
    pass_hours(cluster, 0.5)
    ec2.stop_instances(InstanceIds=[instance_id])
    cluster.local.settle()
    pass_hours(cluster, 0.5)
    ec2.start_instances(InstanceIds=[instance_id])
    cluster.turn()
    cluster.local.settle()
    pass_hours(cluster, 0.01)
    ec2.terminate_instances(InstanceIds=[instance_id])
    cluster.local.settle()
    assert cluster.reconcile() == 0
    pass_hours(cluster, 0.1)  # the minimum has passed as well
    made, report = invoice_and_report(cluster)
    assert sum(line.seconds for line in made.lines) == 1815 + 60
    assert any(instance_id in note and "stopped in between" in note for note in report.notes)


def test_a_stopped_instance_that_a_pass_saw_costs_what_it_ran(cluster: SimulatedCluster):
    (instance_id,) = launch(cluster, 8, CPU)
    pass_hours(cluster, 0.5)
    cluster.local.client("ec2").stop_instances(InstanceIds=[instance_id])
    cluster.local.settle()
    pass_hours(cluster, 0.1)
    assert cluster.reconcile(3) == 0
    pass_hours(cluster, 0.5)
    made, report = invoice_and_report(cluster)
    assert sum(line.seconds for line in made.lines) == 1815
    assert differences(made, report) == {}


def test_a_pass_that_looks_late_bills_too_little_and_the_report_says_how_much_at_most(
    cluster: SimulatedCluster,
):
    cluster.slurm.start(7, GPU)
    assert cluster.resume() == 0
    cluster.boot()
    pass_hours(cluster, 0.05)
    assert cluster.reconcile() == 0
    pass_hours(cluster, 0.5)
    made, report = invoice_and_report(cluster)
    missing = -sum(differences(made, report).values(), Decimal(0))
    assert missing > Decimal("0.04")
    (note,) = notes_on_cost(report)
    assert f"up to {missing:.2f} USD more" in note


def test_a_restart_of_the_local_cloud_loses_nothing_of_its_invoice(tmp_path: Path):
    with running_cluster(tmp_path, speed=0.0) as cluster:
        launch(cluster, 7, GPU[:2])
        pass_hours(cluster, 0.25)
        made, _ = invoice_and_report(cluster)
        state, now = cluster.local.cloud.options.state, int(cluster.clock.now())
    log = UsageLog(state)
    log.end_all(now)  # as the daemon does at its end
    instances = [event for event in log.read() if event.kind is Kind.INSTANCE]
    later = invoice.make(instances, LocalRates(), since=made.since, until=now + HOUR)
    assert later.total == made.total > 0
