"""The report of the whole tier against the local cloud's invoice.

It runs alone, when the lanes and the lost head are over: interruptions, failed launches, killed
slurmctlds and heads that were away lie behind. The two sums share no code and no record.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tests.slurm.conftest import toolkit
from toolkit.config import load

pytestmark = [pytest.mark.machines, pytest.mark.timeout(600, func_only=True)]
log = logging.getLogger(__name__)

CENT = Decimal("0.01")
MORE = re.compile(r"EC2 may bill up to ([0-9.]+) USD more")
MINIMUM = 60  # seconds


def epoch(text):
    return int(datetime.fromisoformat(text).timestamp())


@pytest.fixture(scope="module")
def until():
    """The end of both sums, in a form that both commands take."""
    return f"{datetime.now(UTC) - timedelta(seconds=5):%Y-%m-%dT%H:%M:%S}"


@pytest.fixture(scope="module")
def report(cluster, until):
    return json.loads(cluster.toolkit("report", "--since", "2d", "--until", until, "--json").stdout)


@pytest.fixture(scope="module")
def invoice_lines(cluster, until, report):
    """The invoice's lines of the cluster's instances, by instance.

    Image builders are left out: no head looks at them, and EC2 forgets them within an hour.
    Clusters of earlier runs, which the state directory still knows, are over before this one.
    """
    first_launch = min(epoch(item["launched"]) for item in report["instances"])
    text = toolkit("local", "invoice", "--since", "2d", "--until", until, "--json").stdout
    name = load(cluster.config).cluster
    lines: dict[str, list[dict]] = {}
    for line in json.loads(text)["lines"]:
        tags = line["tags"]
        is_ours = tags.get("toolkit:cluster") == name and tags.get("toolkit:role") != "builder"
        if line["kind"] == "instance" and is_ours and line["start"] >= first_launch:
            lines.setdefault(line["resource"], []).append(line)
    return lines


def billed(lines):
    return sum((Decimal(line["cost"]) for line in lines), Decimal(0))


LESS = ("end not seen", "billed from the latter", "refunded; it may have run")
"""Notes by which EC2 may bill more than the report has."""
UNSURE = (*LESS, "not billed in between", "billed to the former", "billed from the former",
          "billed for the least")  # fmt: skip
"""Notes that doubt an instance's amount."""


def is_noted(instance_id, report, texts=UNSURE):
    return any(
        instance_id in note and any(text in note for text in texts) for note in report["notes"]
    )


def test_report_and_invoice_have_the_same_instances(report, invoice_lines):
    reported = {item["instance"] for item in report["instances"]}
    assert len(reported) > 1
    assert invoice_lines.keys() <= reported
    for instance_id in reported - invoice_lines.keys():
        (item,) = (item for item in report["instances"] if item["instance"] == instance_id)
        # It never ran, and no pass could know. It is in the report with the least that EC2 bills.
        assert item["billed_seconds"] <= MINIMUM, item


def seconds_of_late_end(item, lines):
    """Return the seconds from the end to the pass that saw it.

    EC2 gives no time of the end of an instance that shut itself down.
    """
    if item["ended"] is None or item["end_cause"] != "unknown":
        return 0
    return max(epoch(item["ended"]) - lines[-1]["end"], 0)


def test_each_instance_differs_by_the_seconds_before_a_pass_saw_it(report, invoice_lines):
    compared = [
        (item, invoice_lines[item["instance"]])
        for item in report["instances"]
        if item["instance"] in invoice_lines and not is_noted(item["instance"], report)
    ]
    assert compared
    for item, lines in compared:
        difference = billed(lines) - Decimal(item["total"])
        late = epoch(item["billed_from"]) - lines[0]["start"]
        hourly = max(Decimal(line["rate"]) for line in lines)
        log.warning("%s: invoice %s, %s s late", item, billed(lines), late)
        # At most what the report itself tells: from the launch to the start of the bill.
        assert late <= epoch(item["billed_from"]) - epoch(item["launched"])
        seconds = abs(late) + seconds_of_late_end(item, lines) + 1
        assert abs(difference) <= seconds * hourly / 3600 + Decimal("0.000002"), item


def test_an_instance_whose_end_or_start_nobody_saw_costs_no_more_than_the_invoice(
    report, invoice_lines
):
    """Compare such instances; a run of the tier may have none."""
    unseen = [
        (item, invoice_lines[item["instance"]])
        for item in report["instances"]
        if item["instance"] in invoice_lines and is_noted(item["instance"], report, LESS)
    ]
    log.warning("%d instances whose end or start nobody saw", len(unseen))
    for item, lines in unseen:
        early = max(lines[0]["start"] - epoch(item["billed_from"]), 0)
        hourly = max(Decimal(line["rate"]) for line in lines)
        most = billed(lines) + (early + 1) * hourly / 3600
        log.warning("%s: invoice %s", item, billed(lines))
        assert Decimal(item["total"]) <= most, item


def test_the_sums_are_equal_to_the_cent_or_differ_by_what_the_report_notes(report, invoice_lines):
    compared = {
        item["instance"]: Decimal(item["total"])
        for item in report["instances"]
        if not is_noted(item["instance"], report)
    }
    reported = sum(compared.values(), Decimal(0))
    invoiced = sum((billed(invoice_lines.get(key, [])) for key in compared), Decimal(0))
    found = [MORE.search(note) for note in report["notes"]]
    noted = sum((Decimal(match[1]) for match in found if match), Decimal(0))
    log.warning("report %s, invoice %s, noted %s: %s", reported, invoiced, noted, report["notes"])
    assert -CENT < invoiced - reported < noted + CENT
