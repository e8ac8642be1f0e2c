"""Every AWS call of slurmplugins, by clients of the real SDK, on the local cloud.

botocore holds each call to the service model that it comes with. `make sdk` runs these tests with
the oldest botocore of the supported systems.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore import xform_name

import slurmplugins
from slurmplugins.cloud import describe_instances
from slurmplugins.cloud.client import client
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.cloud.job_role import JobRole
from slurmplugins.cloud.log_stream import LogStreams
from slurmplugins.cloud.metrics import DailyMetric, daily_values, put_heartbeat
from slurmplugins.cloud.spot_history import spot_prices
from slurmplugins.cloud.stores import S3Store, SecretStore
from slurmplugins.model.hostlist import expand
from slurmplugins.model.instance import Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.model.log_line import LogLine
from slurmplugins.reconciler.instance_ledger import object_key
from slurmplugins.system.clock import SystemClock
from tests.contract.engine import simulated_cluster
from tests.contract.engine.test_cloud_port import launch_template
from tests.contract.local.localcloud import started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.local.localcloud import Local

ROOM = Path(slurmplugins.__file__).parent
SERVICES = ("cloudwatch", "ec2", "logs", "s3", "secretsmanager", "sts")
DAY = 86_400
NODES = expand("gpu-[001-002]")
SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4")
ON_DEMAND = replace(SPOT, lifecycle=Lifecycle.ON_DEMAND)
RESERVED = replace(ON_DEMAND, reservation="cr-0123456789abcdef0")
OFFERINGS = (
    (SPOT,),
    (ON_DEMAND,),
    (RESERVED,),
    (replace(RESERVED, block=True),),
    (SPOT, replace(SPOT, type="g5.2xlarge", price="0.5")),
    (ON_DEMAND, replace(ON_DEMAND, type="g5.2xlarge", price="0.5")),
)
"""Of each kind of launch. Several offerings are a fleet."""


@dataclass
class Aws:
    """The local cloud, and slurmplugins' own clients of it, which keep what they sent."""

    local: Local
    sent: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Operations, each with the headers of its request as signed."""

    def connect(self, service: str) -> Any:
        made = client(service, "us-east-1", self.local.endpoint)
        made.meta.events.register("before-send", self._keep)
        return made

    def _keep(self, request: Any, event_name: str, **_: Any) -> None:
        headers = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in request.headers.items()
        }
        self.sent.append((xform_name(event_name.rpartition(".")[2]), headers))

    def store(self) -> S3Store:
        return S3Store("demo-bucket", lambda: self.connect("s3"))


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIALOCALCLOUD000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    with started(tmp_path) as local:
        launch_template(local.client("ec2"), local.image)
        local.client("s3").create_bucket(Bucket="demo-bucket")
        local.client("secretsmanager").create_secret(Name="demo/slurm-key", SecretString="k" * 40)
        yield Aws(local)


def launch_requests(aws: Aws) -> Iterator[LaunchRequest]:
    """Yield every kind of launch."""
    subnet = aws.local.client("ec2").describe_subnets()["Subnets"][0]
    zone = subnet["AvailabilityZone"]
    for number, offerings in enumerate(OFFERINGS):
        first, *others = (replace(item, zone=zone) for item in offerings)
        yield LaunchRequest(
            attempt=f"a{number}",
            cluster="demo",
            pool="gpu",
            partition="spot",
            launch_template="demo-gpu",
            subnet=subnet["SubnetId"],
            offering=first,
            nodes=NODES,
            others=tuple(others),
        )


def use_ec2(aws: Aws) -> None:
    """Make every call to EC2."""
    cloud = Ec2("demo", lambda: aws.connect("ec2"))
    for request in launch_requests(aws):
        cloud.launch(request, lambda: None)
    aws.local.settle()
    ids = [item.id for item in cloud.instances()]
    assert cloud.retag_nodes({ids[0]: NODES[1]}, lambda _: True)
    cloud.health()
    cloud.network_nodes(["g5.xlarge"])
    cloud.console(ids[0])
    assert cloud.terminate(ids) == set(ids)
    now = int(SystemClock().now())
    prices = spot_prices(lambda: aws.connect("ec2"), SystemClock(), [SPOT.type], now - 3600, now)
    assert {name for name, *_ in prices} == {SPOT.type}


def use_stores(aws: Aws) -> None:
    """Make every call to S3 and Secrets Manager."""
    store = aws.store()
    store.create("ledger/one", {"n": 1})
    store.put("ledger/one", {"n": 2})
    store.put_text("log", "text")
    assert store.get("ledger/one") == {"n": 2}
    assert store.add("records/page", b"rows")
    assert not store.add("records/page", b"other rows")
    assert store.changed_since("records/", 0) == ["records/page"]
    assert SecretStore(lambda: aws.connect("secretsmanager")).get("demo/slurm-key") == "k" * 40


def use_job_role(aws: Aws) -> None:
    """Make every call to STS."""
    anybody = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:*"}
    made = aws.local.client("iam").create_role(
        RoleName="jobs",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": anybody}),
    )
    role = JobRole(made["Role"]["Arn"], lambda: aws.connect("sts"), SystemClock())
    given = role.credentials(user="ada", account="vision", job=7)
    assert given.expires > SystemClock().now()


def use_cloudwatch(aws: Aws) -> None:
    """Make every call to CloudWatch and its logs."""
    clock = SystemClock()
    aws.local.client("logs").create_log_group(logGroupName="/toolkit/demo")
    streams = LogStreams("/toolkit/demo", lambda: aws.connect("logs"), clock)
    for text in ("one", "two"):
        streams.put("gpu-001/i-1", [LogLine(clock.now(), "slurmd", text)])
    put_heartbeat("toolkit/demo", lambda: aws.connect("cloudwatch"), clock)
    today = int(clock.now()) // DAY * DAY
    heartbeats = DailyMetric("toolkit/demo", "Heartbeat", (), "Sum")
    beats = daily_values(lambda: aws.connect("cloudwatch"), clock, [heartbeats], today, today + DAY)
    assert [(item.day, item.value) for item in beats] == [(today, 1.0)]
    events = aws.local.client("logs").filter_log_events(logGroupName="/toolkit/demo")["events"]
    assert [event["message"] for event in events] == ["slurmd: one", "slurmd: two"]


def named_operations(aws: Aws) -> set[str]:
    """Return the operations of these services whose method's name is in slurmplugins."""
    models = [aws.local.client(service).meta.service_model for service in SERVICES]
    methods = {xform_name(name) for model in models for name in model.operation_names}
    trees = [ast.parse(path.read_text()) for path in ROOM.rglob("*.py")]
    words = {
        node.attr if isinstance(node, ast.Attribute) else node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Constant)
    }
    return {word for word in words if isinstance(word, str)} & methods


def test_the_sdk_sends_every_call_that_slurmplugins_makes(aws: Aws):
    use_ec2(aws)
    use_stores(aws)
    use_job_role(aws)
    use_cloudwatch(aws)
    assert {operation for operation, _ in aws.sent} == named_operations(aws)


def test_the_sdk_knows_every_field_that_is_read_of_an_instance(aws: Aws):
    shape = aws.connect("ec2").meta.service_model.shape_for("Instance")
    assert set(shape.members) >= describe_instances.READ_FIELDS


def test_an_object_that_exists_is_not_created_again(aws: Aws):
    store = aws.store()
    assert store.create("ledger/one", {"n": 1})
    assert not store.create("ledger/one", {"n": 2})
    assert store.get("ledger/one") == {"n": 1}


def test_the_condition_is_signed_and_of_one_call_only(aws: Aws):
    store = aws.store()
    store.create("ledger/one", {"n": 1})
    store.put("ledger/one", {"n": 2})
    (_, created), (_, replaced) = aws.sent
    assert created["If-None-Match"] == "*"
    assert "if-none-match" in created["Authorization"].partition("SignedHeaders=")[2]
    assert "If-None-Match" not in replaced


def test_a_pass_of_reconcile_writes_a_launched_instance_to_the_ledger(tmp_path: Path):
    with simulated_cluster.running_cluster(tmp_path) as cluster:
        cluster.slurm.start(7, NODES)
        assert cluster.resume() == 0
        cluster.boot()
        assert cluster.reconcile() == 0
        objects = cluster.local.client("s3").list_objects_v2(Bucket="demo-bucket")
        written = {item["Key"] for item in objects.get("Contents", ())}
        assert written == {object_key(item.id) for item in cluster.live()}
