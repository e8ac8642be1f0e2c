"""Questions of people about a join: status, nodes, jobs, why, report. The site is a fake."""

from __future__ import annotations

import copy
import json
import time

import pytest

from slurmplugins.config import burst
from slurmplugins.head.report import (
    BurstReport,
    HeadReport,
    InstanceReport,
    JobReport,
    NodeReport,
    PassReport,
)
from slurmplugins.model import records
from slurmplugins.slurm import sacct
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_join import Setting
from toolkit import cli
from toolkit.join.runner import ControllerRunner

pytestmark = LEAVES_A_CLOUD
HOUR = 3600
BUCKET = "burst-123456789012-us-east-1"
TOKEN = "8randoms"
NOON = int(time.time()) // HOUR * HOUR - 5 * HOUR
STAYS = "stays: racks expected in 12 m; cloud would cost up to 41.20 USD"


@pytest.fixture(scope="module")
def join(shared, tmp_path_factory):
    """A join of a site and a VPC for all tests."""
    folder = tmp_path_factory.mktemp("join")
    joining = Setting(shared, folder)
    joining.document["prices"] = {
        "racks": [{"nodes": "rack1", "usd_per_hour": "1.5"}],
        "as_of": "2026-11-01T00:00:00Z",
    }
    joining.join().apply(yes=True)
    joining.path = folder / "join.yaml"
    return joining


@pytest.fixture
def joined(join, tmp_path, monkeypatch):
    """A site with our nodes, reached as ssh reaches it.

    It has neither attempts, instances nor records of an earlier test.
    """
    for name in ("TOOLKIT_BILLS", "TOOLKIT_USAGE_STORE"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    s3 = join.clients.client("s3")
    for bucket in (f"{BUCKET}-bak", BUCKET):
        for prefix in ("records/", "ledger/", records.STATUS):
            for item in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ()):
                s3.delete_object(Bucket=bucket, Key=item["Key"])
    site, document = join.site, copy.deepcopy(join.document)
    site.attempts, site.reconcile_plan = [], {}
    site.head_report = HeadReport(at=0.0, cluster="burst")
    monkeypatch.setattr(ControllerRunner, "run", lambda _, argv, **more: site.run(argv, **more))
    join.path.write_text(json.dumps(document))
    conf = site.root / "etc/slurm/slurm.conf"
    text = conf.read_text()
    yield join
    conf.write_text(text)
    join.document = document


def asked(joining, capsys, *words):
    """Return the exit code and the output of a command."""
    capsys.readouterr()
    code = cli.run([*words, "--config", str(joining.path)])
    output = capsys.readouterr()
    return code, output.out + output.err


def attempt(key, nodes, start, end, **more):
    times = {"Submit": str(start - 60), "Start": str(start), "End": str(end)}
    return {"DBIndex": str(key), "JobIDRaw": str(key), "JobID": str(key), "NodeList": nodes,
            **times, **more}  # fmt: skip


def test_status_nodes_jobs_and_why_ask_the_controller(joined, capsys):
    now = time.time()
    joined.site.head_report = HeadReport(
        at=now,
        cluster="burst",
        nodes=(NodeReport("cloud-001", ("ALLOCATED", "CLOUD"), pool="cloud"),),
        machines=(
            InstanceReport("i-1", "cloud-001", "cloud", "compute", "running", "m7i.large",
                           "us-east-1a", "on-demand", "0.1008", launched_at=now - 90),
        ),
        jobs=(JobReport(7, "digits", "ada", "vision", "main", ("PENDING",), "Resources"),),
        last_pass=PassReport(now, "", ()),
        bursts=(BurstReport(7, "7", bursts=False, reason="racks-soon", text=STAYS),),
    )  # fmt: skip
    joined.site.reconcile_plan = {"actions": [], "note": "", "remarks": ["i-9 is odd"]}
    for words, expected in {
        ("status",): "healthy",
        ("nodes",): "m7i.large",
        ("jobs",): "digits",
        ("why", "7"): f"burst: {STAYS}",
        ("why", "cloud-001"): "cloud-001",
        ("reconcile", "--plan"): "i-9 is odd",
    }.items():
        code, text = asked(joined, capsys, *words)
        assert (code, expected in text) == (0, True), text


def test_status_warns_of_records_that_are_late(joined, capsys):
    assert "records    none yet" in " ".join(asked(joined, capsys, "status")[1].splitlines())
    joined.clients.client("s3").put_object(
        Bucket=BUCKET,
        Key=records.STATUS,
        Body=json.dumps({"attempts": time.time() - 5 * HOUR, "error": "no way to S3"}),
    )
    text = asked(joined, capsys, "status")[1]
    assert "of jobs up to 5 h ago" in text
    assert "warning: the records of attempts end 5 h ago, and are due every 30 min: no way" in text


def test_usage_close_reads_the_records_of_a_join(joined, capsys):
    """Take rows of the site's cluster, whose name is another."""
    joined.site.attempts = [attempt(1, "rack1", NOON, NOON + HOUR)]
    window, names = (NOON, NOON + 2 * HOUR), (*sacct.REQUIRED, *sacct.OPTIONAL, *sacct.FREE_TEXT)
    text = joined.site.run(sacct.argv(names, *window, TOKEN))
    written = {"slurm": "24.11.5", "fields": names, "delimiter": sacct.delimiter(TOKEN)}
    attempts = records.pack(
        records.first_line("sacct", "burst", window, window[1], **written), text
    )
    instances = records.pack(records.first_line("instances", "burst", window, window[1]), "")
    for key, body in (
        (records.sacct_key(*window, NOON, attempts), attempts),
        (records.instances_key(window[1], NOON, instances), instances),
    ):
        joined.clients.client("s3").put_object(Bucket=f"{BUCKET}-bak", Key=key, Body=body)
    code, text = asked(joined, capsys, "usage", "close", "--json")
    assert code == 0, text
    read = json.loads(text)["records"]
    assert (read["new_pages"], read["rows"], read["set_aside"]) == (2, 1, [])


def test_a_report_has_racks_and_cloud(joined, capsys):
    """Report jobs in the cloud, on a rack, and without a rate."""
    joined.site.attempts = [
        attempt(1, "cloud-001", NOON + 120, NOON + HOUR, Submit=str(NOON)),
        attempt(2, "rack1", NOON, NOON + 2 * HOUR),
        attempt(3, "rack2", NOON, NOON + HOUR, User="grace"),
    ]
    add_life(joined, "i-1", NOON, NOON + HOUR)
    code, text = asked(joined, capsys, "report", "--since", "12h", "--by", "job", "--json")
    assert code == 0, text
    made = json.loads(text)
    totals = {group["job"]: group["total"] for group in made["groups"]}
    assert (totals["2"], totals["3"], made["racks_total"]) == ("3.000000", "0.000000", "3.000000")
    assert totals["1"] == "0.100800"
    assert (made["cluster"], made["total"], made["unknown_costs"]) == ("burst", "3.100800", [])
    assert [note for note in made["notes"] if note.startswith("rack2: no rate in cluster.yaml")]
    text = " ".join(asked(joined, capsys, "report", "--since", "12h")[1].split())
    racks = "racks: 3.000000 USD of it, amortised: a job there costs nothing extra;"
    assert f"{racks} all else: 0.100800 USD" in text


def add_life(joining, name, launched, ended):
    """Add an instance to the ledger in the bucket of the join."""
    record = {
        "instance_id": name, "node": "cloud-001", "pool": "cloud", "partition": "burst",
        "attempt": "a-1", "type": "m7i.large", "zone": "us-east-1a", "lifecycle": "on-demand",
        "launched_at": launched, "running_at": launched, "ended_at": ended,
        "end_cause": "suspend", "price": "0.1008",
    }  # fmt: skip
    joining.clients.client("s3").put_object(
        Bucket=BUCKET,
        Key=f"ledger/instances/{name}.json",
        Body=json.dumps(record),
    )


def test_a_report_of_racks_alone_reaches_over_the_whole_time(joined, capsys):
    joined.site.attempts = [
        attempt(2, "rack[1-2]", NOON, NOON + HOUR, NNodes="2", AllocTRES="cpu=4")
    ]
    made = json.loads(asked(joined, capsys, "report", "--since", "12h", "--json")[1])
    assert (made["total"], made["racks_total"]) == ("1.500000", "1.500000")
    assert made["since"] == made["asked_since"]


def test_a_join_has_no_mlflow_to_record_in(joined, capsys):
    code, text = asked(joined, capsys, "report", "--record-mlflow")
    assert code == 2
    assert "a join has no MLflow of its own" in text


def test_a_negotiated_price_ranks_the_nodes_of_a_join(joined, capsys):
    negotiated = {"type": "m7i.large", "usd_per_hour": "0.0504"}
    joined.document["prices"]["on_demand"] = [negotiated]
    joined.path.write_text(json.dumps(joined.document))
    code, text = asked(joined, capsys, "join", "apply", "--yes")
    assert code == 0, text
    engine = burst.load(joined.site.root / "etc/slurm-toolkit/burst.json")
    assert [item.price for item in engine.pools["cloud"].offerings] == ["0.0504"]


def test_plan_and_apply_take_the_name_of_an_error(joined, capsys):
    conf = joined.site.root / "etc/slurm/slurm.conf"
    conf.write_text(conf.read_text().replace(",idle_on_node_suspend", ""))
    code, text = asked(joined, capsys, "join", "plan", "--json")
    assert code == 1
    made = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert made["refused"] is True
    code, text = asked(joined, capsys, "join", "apply", "--dry-run")
    assert (code, "[site-not-ready]" in text) == (1, True)
    skip = ("--skip-check", "idle-on-suspend")
    assert asked(joined, capsys, "join", "plan", *skip)[0] == 0
    code, text = asked(joined, capsys, "join", "plan", "--skip-check", "idle-on-suspends")
    assert code == 1
    assert "did you mean 'idle-on-suspend'?" in text
