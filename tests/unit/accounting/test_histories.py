"""Histories whose answer was derived by hand: `tests/corpus/accounting`.

Each goes through the readers of ledger, EC2 and sacct, as a cluster's does.
"""

import json
import tomllib
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.unit.accounting.test_ledger import FakeEc2, FakeS3, describe_instance
from tests.unit.accounting.test_sacct import NAMES, TOKEN, row, text
from toolkit.accounting import (
    cloudtrail,
    export,
    instance_sources,
    ledger,
    sacct,
    slurm_instances,
)
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.collect import with_static_nodes
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.node_shapes import shapes
from toolkit.accounting.racks import RackNode
from toolkit.accounting.report import Key
from toolkit.config.rack_names import rack_nodes
from toolkit.prices import (
    Catalogue,
    Price,
    PriceBook,
    PriceSource,
    Shape,
    SpotHistory,
    parse_usd,
)

HISTORIES = sorted((Path(__file__).parents[2] / "corpus" / "accounting").glob("*.toml"))
CATALOGUE = Catalogue.bundled()
RECORD = {
    "instance_id": "i-1",
    "node": "gpu-001",
    "pool": "gpu",
    "partition": "spot",
    "attempt": "a-1",
    "type": "g5.xlarge",
    "zone": "us-east-1a",
    "lifecycle": "spot",
    "running_at": None,
    "ended_at": None,
    "end_cause": "suspend",
    "price": "0.36",
}
SLURM_ROW = {
    "Cluster": "demo",
    "NodeName": "gpu-001",
    "Start": "Unknown",
    "End": "Unknown",
    "InstanceId": "i-1",
    "InstanceType": "g5.xlarge",
    "Extra": "",
}
ROW = {
    "DBIndex": "1",
    "NNodes": "1",
    "NodeList": "gpu-001",
    "AllocTRES": "billing=4,cpu=4,gres/gpu=1,mem=15000M,node=1",
}


def epoch(value):
    if isinstance(value, list):
        return [epoch(item) for item in value]
    return int(value.timestamp()) if isinstance(value, datetime) else value


def ledger_object(entry):
    """Return the key and the text of one `[[ledger]]` table."""
    record = RECORD | {name: epoch(value) for name, value in entry.items()}
    if record["ended_at"] in {None, "never"}:
        record |= {"ended_at": None, "end_cause": None}
    content = record.pop("text", None)
    key = record.pop("key", f"ledger/instances/{record['instance_id']}.json")
    return key, json.dumps(record) if content is None else content


def described(entry):
    """Return one `[[ec2]]` table as DescribeInstances would."""
    tags = {"toolkit:cluster": "demo", "toolkit:role": entry.get("role", "compute")}
    item = describe_instance(
        entry["instance_id"],
        InstanceType=entry["type"],
        LaunchTime=entry["launched_at"],
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )
    if entry["lifecycle"] != "spot":
        del item["InstanceLifecycle"]
    return item


def slurm_row(entry):
    """Return one `[[slurm_instance]]` table as a row of sacctmgr."""
    values = SLURM_ROW | {name: str(epoch(value)) for name, value in entry.items()}
    return "|".join(values.values()) + "\n"


def trail_of(entries):
    """Return the `[[cloudtrail]]` tables as they are read from a file."""
    records = []
    for entry in entries:
        record = {"eventSource": "ec2.amazonaws.com"} | entry
        ids = record.pop("instances")
        items = [{"instanceId": instance_id} for instance_id in ids]
        record["responseElements"] = {"instancesSet": {"items": items}}
        record["serviceEventDetails"] = {"instanceIdSet": ids}
        records.append(record)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trail.json"
        path.write_text(json.dumps({"Records": records}))
        return cloudtrail.read([path])


def spot_history(history, since):
    changes = [(epoch(change["at"]), change["usd"]) for change in history.get("spot", ())]
    return SpotHistory.from_points(
        ("g5.xlarge", "us-east-1a", second, parse_usd(usd))
        for second, usd in changes or [(since, "0.36")]
    )


def rack_rates(history):
    return {
        name: RackNode(
            Price(Decimal(entry["usd_per_hour"]), PriceSource.RACK, 0),
            Shape(entry["cpus"], entry["memory_gib"] * 1024, entry.get("gpus", 0)),
        )
        for entry in history.get("racks", ())
        for name in rack_nodes(entry["nodes"])
    }


def payers(history):
    return CostPolicy(**{key: Payer(who) for key, who in history.get("cost_policy", {}).items()})


def report_of(history):
    since, until = map(epoch, history["window"])
    launches = [
        epoch(entry["launched_at"]) for entry in history["ledger"] if "launched_at" in entry
    ]
    written_at = max(launches, default=since)
    objects = dict(map(ledger_object, history["ledger"]))
    trail = trail_of(history.get("cloudtrail", ()))
    content = ledger.read(
        FakeS3({key: (value, written_at) for key, value in objects.items()}),
        "bucket",
        FakeEc2(*map(described, history.get("ec2", ()))),
        "demo",
        trail=trail,
    )
    slurm = slurm_instances.parse(
        "".join(map(slurm_row, history.get("slurm_instance", ()))), "demo"
    )
    joined = instance_sources.joined(
        content.instances, slurm.instances, window=Window(since, until), trail=trail
    )
    rows = [
        row(**(ROW | {name: str(epoch(value)) for name, value in entry.items()}))
        for entry in history.get("sacct", ())
    ]
    jobs = sacct.parse(text(*rows), NAMES, TOKEN, cluster="demo")
    instances = with_static_nodes(joined.instances, frozenset(history.get("static", ())))
    return build(
        cluster="demo",
        attempts=jobs.attempts,
        instances=instances,
        shapes=shapes(instances, (), CATALOGUE),
        book=PriceBook("us-east-1", CATALOGUE, spot_history(history, since - 10**7)),
        window=Window(since, until),
        now=epoch(history.get("now", history["window"][1])),
        set_aside=(*content.set_aside, *slurm.set_aside, *jobs.set_aside),
        disagreements=(*content.disagreements, *joined.disagreements),
        racks=rack_rates(history),
        cost_policy=payers(history),
    )


def lines(report):
    return sorted(
        [
            charge["component"],
            charge["job"] or "-",
            "-" if charge["attempt"] is None else charge["attempt"],
            charge["user"] or "-",
            charge["usd"] or "unknown",
        ]
        for charge in export.as_json(report, [Key.JOB])["charges"]
    )


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_costs_what_was_derived_by_hand(path):
    history = tomllib.loads(path.read_text(encoding="utf-8"))
    report = report_of(history)
    assert lines(report) == sorted(history["charges"])
    assert export.money(report.net) == history["total"]
    known = [Decimal(line[-1]) for line in history["charges"] if line[-1] != "unknown"]
    assert sum(known) == Decimal(history["total"])
    for words in history.get("notes", ()):
        assert any(words in note for note in report.notes), words
    if not history.get("notes"):
        assert report.notes == ()
    assert list(report.unknown_costs) == history.get("unknown_costs", [])


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_the_jobs_of_a_history_have_their_sums(path):
    history = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = report_of(history).groups([Key.JOB])
    sums = {group.key_values[0]: export.money(group.total) for group in groups if group.has_jobs}
    expected: dict[str, Decimal] = {}
    for _, job, _, _, usd in history["charges"]:
        if job != "-" and usd != "unknown":
            expected[job] = expected.get(job, Decimal(0)) + Decimal(usd)
    by_hand = history.get("jobs") or {job: str(usd) for job, usd in expected.items()}
    assert {job: usd for job, usd in sums.items() if job in by_hand or usd != "0.000000"} == by_hand
