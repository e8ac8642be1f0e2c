"""Records through the local cloud's S3: the head's program with the head's role, and reports.

slurmdbd is a fake. All else runs: the program, its state file, IAM, S3, EC2's prices, the CLI.
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from slurmplugins.cloud import conditional_writes
from slurmplugins.cloud.stores import S3Store
from slurmplugins.config import burst
from slurmplugins.errors import Denied, SlurmUnreachable
from slurmplugins.head.record_state import FILE
from slurmplugins.model import records
from slurmplugins.reconciler.instance_ledger import LedgerEntry, object_key, to_json
from slurmplugins.reconciler.pass_state import PassState
from slurmplugins.records import Writer
from slurmplugins.system.clock import Clock, SystemClock
from slurmplugins.system.logger import Log
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_role_calls import Stack
from tests.fakes.clock import FakeClock
from tests.fakes.slurmdbd import FakeAccounting, Row
from toolkit import cli
from toolkit.accounting.records import attempts_of, list_pages, read_pages
from toolkit.deploy import names

pytestmark = LEAVES_A_CLOUD
HOUR, DAY = 3600, 86_400
COUNTED = ("put_object", "list_objects_v2", "describe_spot_price_history", "get_metric_data")


class KilledError(BaseException):
    """The program's end by kill -9."""


class Calls:
    """A client whose calls are counted, and which is killed before or after one of them."""

    def __init__(self, client, head) -> None:
        self._client, self._head = client, head

    def __getattr__(self, name: str) -> object:
        work = getattr(self._client, name)
        if name not in COUNTED:
            return work

        def call(**arguments):
            self._head.step()
            answer = work(**arguments)
            self._head.step()
            return answer

        return call


class RecordsHead:
    """The head's program, with the credentials of the head's role."""

    def __init__(self, config, folder, clock: Clock | None = None) -> None:
        self.config, self.folder = config, folder
        self.clock = clock or SystemClock()
        self.stack = Stack(config)
        self.bucket = f"{self.stack.bucket}-bak"
        self.accounting = FakeAccounting()
        self.steps = 10**9
        self.entries: dict[str, LedgerEntry] = {}
        self.nat_gateway: str | None = None

    def step(self):
        self.steps -= 1
        if self.steps < 0:
            raise KilledError

    def connect(self, service):
        client = self.stack.client(service, self.stack.head)
        if service == "s3":
            conditional_writes.attach(client)
        return Calls(client, self)

    def add_life(self, name, launched, ended, **more):
        """Write an instance's life, as reconcile does."""
        entry = LedgerEntry(
            instance_id=name, node="gpu-001", pool="gpu", partition="gpu", attempt="a",
            type="g5.xlarge", zone="us-east-1a", lifecycle="on-demand",
            launched_at=float(launched), price="1.006", running_at=float(launched + 5),
            ended_at=None if ended is None else float(ended), end_cause="suspend",
        )  # fmt: skip
        entry = replace(entry, **more)
        self.entries[name] = entry
        PassState(ledger=self.entries).save(self.folder)
        s3 = self.stack.config_client("s3")
        body = json.dumps(to_json(entry))
        s3.put_object(Bucket=self.stack.bucket, Key=object_key(name), Body=body)

    def write(self, steps=10**9):
        """Run the program, and kill it at a step."""
        self.steps = steps
        settings = burst.parse(
            {
                "version": 1, "cluster": "demo", "region": "us-east-1",
                "endpoint_url": None, "bucket": self.stack.bucket,
                "reads_metrics": True, "nat_gateway": self.nat_gateway,
                "pools": {"gpu": {
                    "nodes": "gpu-[001-002]", "partition": "gpu", "launch_template": "lt-1",
                    "subnets": {"us-east-1a": "subnet-1"},
                    "offerings": [
                        {"type": "g5.xlarge", "capacity": "spot", "zone": "us-east-1a"}
                    ],
                }},
            }
        )  # fmt: skip
        Writer(
            config=settings,
            bucket=self.bucket,
            accounting=self.accounting,
            connect=self.connect,
            folder=self.folder,
            clock=self.clock,
            log=Log(io.StringIO().write, self.clock, {}),
        ).run()

    def attempts(self):
        """Return each attempt's end, as a reader has it."""
        s3 = self.stack.config_client("s3")
        listing = list_pages(s3, self.bucket, records.SACCT, 0, int(time.time()) + HOUR)
        pages, set_aside = read_pages(s3, self.bucket, listing.keys)
        assert set_aside == []
        return {item.key: item.ended for item in attempts_of(pages).attempts}


@pytest.fixture
def head(config, tmp_path, capsys):
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    capsys.readouterr()
    folder = tmp_path / "head"
    folder.mkdir()
    return RecordsHead(config, folder)


def clock_of_yesterday():
    """Return a clock that stands at yesterday's noon.

    A test that counts days fails over midnight by the real clock.
    It also fails in a day's first hours, before AWS has the metrics of the day before.
    """
    return FakeClock(int(time.time()) // DAY * DAY - DAY / 2)


def toolkit(config, *words):
    return cli.run([words[0], "--config", str(config.path), *words[1:]])


def report(config, capsys, *more):
    capsys.readouterr()
    assert toolkit(config, "report", "--since", "1d", "--by", "job", "--json", *more) == 0
    return json.loads(capsys.readouterr().out)


def test_the_heads_role_adds_records_and_replaces_none(head, capsys):
    head.accounting.rows = {1: Row(1, 11, int(time.time()) - HOUR, int(time.time()) - 60)}
    head.write()
    client = head.stack.client("s3", head.stack.head)
    conditional_writes.attach(client)
    listed = head.stack.config_client("s3").list_objects_v2(Bucket=head.bucket)
    keys = [item["Key"] for item in listed["Contents"]]
    assert {key.split("/")[1] for key in keys} == {
        "sacct",
        "instances",
        "slurm-instances",
        "prices",
    }
    page = next(key for key in keys if key.startswith(records.SACCT))
    where = {"Bucket": head.bucket, "Key": page}
    for call, arguments in (
        (client.put_object, {**where, "Body": b"another"}),
        (client.get_object, where),
        (client.delete_object, where),
        (client.list_objects_v2, {"Bucket": head.bucket, "Prefix": "records/"}),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call(**arguments)
    store = S3Store(head.bucket, lambda: client)
    assert not store.add(page, b"another"), "it is there"
    with pytest.raises(Denied):
        store.add("records/ledger/instances/i-1.json", b"{}")
    status = json.loads(
        head.stack.config_client("s3")
        .get_object(Bucket=head.stack.bucket, Key=records.STATUS)["Body"]
        .read()
    )
    assert status["error"] == ""
    assert toolkit(head.config, "status") == 0
    assert "of jobs up to" in capsys.readouterr().out


def test_a_program_that_is_killed_at_any_step_loses_nothing(head):
    now = int(time.time())
    rows = {
        number: Row(number, 100 + number, now - number * 40 * HOUR, now - number * 40 * HOUR + 60)
        for number in range(1, 5)
    }
    rows[9] = Row(9, 109, now - 5 * HOUR)
    head.accounting.rows = dict(rows)
    for steps in (0, 1, 2, 3, 4, 5, 7, 9, 12, 16, 20, 30):
        with pytest.raises(KilledError):
            head.write(steps)
        if steps == 7:
            rows[9] = replace(rows[9], end=now - 2 * HOUR, state="NODE_FAIL")
            head.accounting.rows[9] = rows[9]
        if steps == 12:
            (head.folder / FILE).write_text("damaged")
    head.write()
    assert head.attempts() == {key: row.end or None for key, row in rows.items()}


def test_a_slurmdbd_that_does_not_answer_keeps_no_other_record_back(head, capsys):
    def no_answer(*_):
        raise SlurmUnreachable("slurmdbd does not answer")

    head.accounting.window = head.accounting.instances = no_answer
    head.add_life("i-1", time.time() - 2 * HOUR, time.time() - HOUR)
    with pytest.raises(SlurmUnreachable):
        head.write()
    s3 = head.stack.config_client("s3")
    listed = s3.list_objects_v2(Bucket=head.bucket)["Contents"]
    assert {item["Key"].split("/")[1] for item in listed} == {"instances", "prices"}
    assert toolkit(head.config, "status") == 0
    assert "warning: the last records could not be written: slurmdbd" in capsys.readouterr().out


def test_a_report_runs_with_the_head_stopped_and_the_cluster_destroyed(head, capsys):
    """Destroy keeps the records, and the lives that end with the cluster."""
    config, now = head.config, int(time.time())
    head.add_life("i-1", now - 3 * HOUR, now - 2 * HOUR)
    head.add_life("i-2", now - HOUR, None)
    row = Row(1, 11, now - 3 * HOUR + 100, now - 2 * HOUR - 100, state="COMPLETED")
    head.accounting.rows = {1: row}
    head.write()
    time.sleep(1)  # a report up to the second of the records needs no head
    config.actor.clients.client("ec2").stop_instances(InstanceIds=[head.stack.head])
    stopped = report(config, capsys)
    assert [charge["job"] for charge in stopped["charges"] if charge["job"]]
    assert any("the head node does not answer" in note for note in stopped["notes"])

    assert toolkit(config, "destroy") == 3
    assert "the instance ledger stays" in capsys.readouterr().err
    assert toolkit(config, "destroy", "--yes") == 0, capsys.readouterr().err
    assert "records of jobs, instances and prices: `toolkit report` reads" in (
        capsys.readouterr().out
    )
    gone = report(config, capsys)

    def costs(made, instance_id):
        return [
            (charge["component"], charge["job"], charge["usd"])
            for charge in made["charges"]
            if charge["instance"] == instance_id
        ]

    assert costs(gone, "i-1") == costs(stopped, "i-1")
    assert costs(gone, "i-2")
    s3, prefix = config.actor.clients.client("s3"), "records/ledger/instances/"
    kept = s3.list_objects_v2(Bucket=head.bucket, Prefix=prefix)["Contents"]
    assert f"{prefix}i-2.json" in {item["Key"] for item in kept}

    assert toolkit(config, "destroy", "--backups") == 3
    assert "no report of this cluster will be possible" in capsys.readouterr().err
    assert names.backup_bucket(config.config, config.actor.clients.account) == head.bucket
