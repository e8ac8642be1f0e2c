"""Payers: jobs, the cluster, or all jobs by the cost of their work."""

import csv
import io
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from tests.unit.accounting.test_report import KEYS, printed
from tests.unit.finance.samples import html_of
from toolkit.accounting import export, mlflow
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.charges import Component
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.racks import RackNode
from toolkit.accounting.report import Key
from toolkit.prices import Contracts, Price, PriceSource, Shape
from toolkit.prices.contracts import Match, NegotiatedPrice, Reservation, Term

HEAD = {"pool": "head", "node": "head", "spot": False, "ended": None, "end_cause": ""}
UNTIL = T0 + 7200


def a_report(policy=None, attempts=None, instances=None, **more):
    instances = [an_instance()] if instances is None else instances
    return build(
        cluster="demo",
        attempts=[an_attempt()] if attempts is None else attempts,
        instances=instances,
        shapes={instance.instance_id: G5 for instance in instances},
        book=more.pop("book", a_book()),
        window=Window(T0, UNTIL),
        now=UNTIL,
        cost_policy=policy,
        **more,
    )


def by_user(report):
    return {group.key_values[0]: group.total for group in report.groups([Key.USER])}


def test_by_default_a_job_pays_what_it_caused():
    """Charge boot, work and idle tail: 600, 3000 and 3600 seconds."""
    assert by_user(a_report()) == {"ada": 720_000}


@pytest.mark.parametrize(
    ("key", "moved"), [("boot", 60_000), ("idle_tail", 360_000), ("idle_gap", 0)]
)
def test_the_cluster_pays_what_the_policy_gives_it(key, moved):
    report = a_report(CostPolicy(**{key: Payer.CLUSTER}))
    expected = {"ada": 720_000 - moved} | ({"": moved} if moved else {})
    assert by_user(report) == expected
    assert report.components() == a_report().components()


def test_shared_overhead_is_paid_by_work_and_leaves_nothing_with_the_cluster():
    """Share the head's 2.012 by work of 3000 and 1000 s."""
    instances = [
        an_instance(),
        an_instance("i-2", node="gpu-002"),
        an_instance("i-head", **HEAD),
    ]
    attempts = [
        an_attempt(1),
        an_attempt(2, job_id="8", user="bob", nodes=("gpu-002",), ended=T0 + 1600),
    ]
    report = a_report(CostPolicy(overhead=Payer.SHARED), attempts, instances)
    own = by_user(a_report(None, attempts, instances))
    assert by_user(report) == {
        "ada": own["ada"] + 1_509_000,
        "bob": own["bob"] + 503_000,
        "": 0,
    }
    assert report.net == 3_452_000
    rows = list(csv.DictReader(io.StringIO(export.as_csv(report))))
    assert sum(Decimal(row["usd"]) for row in rows) == Decimal(export.money(report.net))
    shared = [(row["user"], row["usd"]) for row in rows if row["instance"] == "shared"]
    assert shared == [("", "-2.012000"), ("ada", "1.509000"), ("bob", "0.503000")]


def test_without_work_a_shared_cost_stays_with_the_cluster():
    report = a_report(
        CostPolicy(overhead=Payer.SHARED), attempts=[], instances=[an_instance("i-head", **HEAD)]
    )
    assert by_user(report) == {"": 2_012_000}
    assert report.shares == ()


def test_what_ec2_refunded_has_no_cost_to_share():
    refunded = an_instance("i-2", node="gpu-002", ended=T0 + 900, end_cause="interruption")
    report = a_report(CostPolicy(idle=Payer.SHARED), instances=[an_instance(), refunded])
    assert report.shares == ()
    assert by_user(report) == {"ada": 720_000, "": 0}


def test_a_shared_cost_is_not_recorded_in_mlflow():
    """Record no amount that depends on the report's time."""
    instances = [an_instance(launched=T0 + 1), an_instance("i-head", **HEAD)]
    tries = [an_attempt(restarts=0)]
    policy = CostPolicy(overhead=Payer.SHARED)
    shared, own = a_report(policy, tries, instances), a_report(None, tries, instances)
    assert mlflow.job_tags(shared) == mlflow.job_tags(own) != {}


def test_the_report_says_who_pays():
    report = a_report(CostPolicy(boot=Payer.SHARED))
    assert export.as_json(report, KEYS)["cost_policy"]["boot"] == "shared"
    assert "shared: boot" in printed(report)
    assert "shared: boot" in html_of(report, KEYS)


def test_every_amount_names_its_source_and_day():
    contracts = Contracts(
        as_of=T0 - 3600,
        on_demand=(NegotiatedPrice(Decimal("0.5"), instance_type="g5.xlarge"),),
        reservations=(
            Reservation(
                "reserved: 1 x m7i.large (1)",
                PriceSource.RESERVED,
                Match("m7i.large"),
                1,
                Decimal("0.06"),
                Term(T0, UNTIL),
            ),
        ),
    )
    instances = [an_instance(), an_instance("i-head", **HEAD)]
    report = a_report(instances=instances, book=replace(a_book(), contracts=contracts))
    data = export.as_json(report, KEYS)
    found = {(row["instance"], row["price_source"], row["price_as_of"]) for row in data["charges"]}
    assert found == {
        ("i-1", "history", "2026-11-21T09:43:20Z"),
        ("i-head", "contract", "2026-11-21T09:00:00Z"),
        ("reserved: 1 x m7i.large (1)", "reserved", "2026-11-21T09:00:00Z"),
    }
    rows = csv.DictReader(io.StringIO(export.as_csv(report)))
    assert {(row["instance"], row["price_source"], row["price_as_of"]) for row in rows} == found
    assert report.components()[Component.COMMITMENT] == 120_000  # 2 hours at 0.06, unused
    for text in (printed(report, width=120), html_of(report, KEYS)):
        for words in ("contract, 2026-11-21", "reserved, 2026-11-21", "unused commitment"):
            assert words in text


RACK = {
    "RACK7": RackNode(Price(Decimal("3.6"), PriceSource.RACK, T0), Shape(8, 32_000, 2)),
    "rack-001": RackNode(Price(Decimal("3.6"), PriceSource.RACK, T0), None),
}


def test_a_racks_node_is_in_every_table():
    """A node whose shape nobody knows is wholly the job's."""
    attempt = an_attempt(nodes=("rack-001",), other_nodes=("RACK7",), node_count=2)
    report = a_report(attempts=[attempt], instances=[], racks=RACK)
    # 3000 s at 1000 micro-dollars; WHOLE is 4 CPUs, 16000 MiB and 1 GPU over two nodes: a quarter.
    assert by_user(report) == {"ada": 3_000_000 + 750_000}
    data = export.as_json(report, KEYS)
    assert {row["capacity"] for row in data["instances"]} == {"rack"}
    assert data["attempts"][0]["nodes"] == ["rack-001", "RACK7"]
    assert report.unknown_costs == ()
    assert report.notes == ("rack-001: size not known, so a job is charged for all of it",)
    for text in (printed(report, width=120), export.as_csv(report)):
        assert "RACK7" in text
        assert "rack" in text
    assert '<td class="name">rack</td>' in html_of(report, KEYS)
    assert " cost " in printed(report)
    assert "instance cost" not in printed(report)


def test_a_part_of_a_job_on_a_rack_is_not_recorded_in_mlflow():
    def tags(**attempt):
        tries = [an_attempt(nodes=("rack-001",), restarts=0, **attempt)]
        return mlflow.job_tags(a_report(attempts=tries, instances=[], racks=RACK))

    assert tags()["7"]["cost_usd"] == "3.000000"
    assert tags(started=T0 - 1) == tags(ended=UNTIL + 1) == {}


def test_two_jobs_that_overbook_a_racks_node_share_its_rate():
    tries = [an_attempt(key, job_id=str(key), nodes=("rack-001",), restarts=0) for key in (1, 2)]
    report = a_report(attempts=tries, instances=[], racks=RACK)
    assert sorted(group.total for group in report.groups([Key.JOB])) == [1_500_000, 1_500_000]


def test_a_running_job_on_a_rack_is_charged_until_now():
    attempt = an_attempt(nodes=("rack-001",), ended=None, state="RUNNING")
    assert by_user(a_report(attempts=[attempt], instances=[], racks=RACK)) == {"ada": 6_600_000}


def test_the_next_job_on_a_racks_node_ends_a_runaway_one():
    """Charge ada for 1200 s, and bob for 3000 s."""
    tries = [
        an_attempt(1, nodes=("rack-001",), ended=None, state="RUNNING"),
        an_attempt(
            2,
            job_id="8",
            job="8",
            user="bob",
            nodes=("rack-001",),
            started=T0 + 1800,
            ended=T0 + 4800,
        ),
    ]
    report = a_report(attempts=tries, instances=[], racks=RACK)
    assert by_user(report) == {"ada": 1_200_000, "bob": 3_000_000}
    assert any("job 7: sacct has no end" in note for note in report.notes)


def test_a_commitment_pays_for_no_instance_that_never_ran():
    """Keep the whole of 2 hours at 0.06 unused."""
    reserved = Reservation(
        "reserved: 1 x g5.xlarge (1)",
        PriceSource.RESERVED,
        Match("g5.xlarge"),
        1,
        Decimal("0.06"),
        Term(T0, UNTIL),
    )
    failed = an_instance(spot=False, ended=T0 + 5, end_cause="launch-failed", running=None)
    book = replace(a_book(), contracts=Contracts(as_of=T0, reservations=(reserved,)))
    report = a_report(attempts=[], instances=[failed], book=book)
    assert report.components() == {Component.COMMITMENT: 120_000}
