"""Logs and alarms on the local cloud: with the roles of a deployed stack, and by the CLI."""

from __future__ import annotations

import json
import time

import pytest
from botocore.exceptions import ClientError
from moto.cloudwatch.models import cloudwatch_backends

from slurmplugins.cloud.log_stream import LogStreams
from slurmplugins.cloud.metrics import DailyMetric, daily_values, put_heartbeat
from slurmplugins.errors import Denied
from slurmplugins.model.log_line import LogLine
from slurmplugins.system.clock import SystemClock
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_role_calls import Stack
from toolkit import cli
from toolkit.local.options import ACCOUNT

pytestmark = LEAVES_A_CLOUD
GROUP = "/toolkit/demo"
NAMESPACE = "toolkit/demo"


@pytest.fixture
def stack(shared_cluster):
    """The cluster's stack, without lines, heartbeats and nodes of an earlier test."""
    found = Stack(shared_cluster)
    found.clear()
    client = found.config_client("logs")
    for stream in client.describe_log_streams(logGroupName=GROUP)["logStreams"]:
        client.delete_log_stream(logGroupName=GROUP, logStreamName=stream["logStreamName"])
    cloudwatch_backends[ACCOUNT]["us-east-1"].metric_data.clear()
    return found


def send(stack, instance_id, stream, *texts, at=None, group=GROUP):
    """Send lines as the shipper of an instance does, a second apart."""
    begin = (at or time.time()) - len(texts)
    lines = [LogLine(begin + index, *text) for index, text in enumerate(texts)]
    LogStreams(group, lambda: stack.client("logs", instance_id), SystemClock()).put(stream, lines)


def logs(stack, config, capsys, *argv):
    """Return what `toolkit logs` prints, with its exit code."""
    del stack
    capsys.readouterr()
    code = cli.run(["logs", "--config", str(config.path), *argv])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


def test_head_and_nodes_send_their_logs_with_their_own_roles(stack):
    node = stack.node()
    send(stack, node, f"gpu-001/{node}", ("slurmd", "one"), ("kernel", "two"))
    send(stack, stack.head, f"head/{stack.head}", ("slurmctld", "three"))
    client = stack.config_client("logs")
    events = client.filter_log_events(logGroupName=GROUP)["events"]
    assert {event["message"] for event in events} == {
        "slurmd: one",
        "kernel: two",
        "slurmctld: three",
    }
    assert stack.denied() == []


def test_an_instance_writes_to_no_other_group_and_reads_and_deletes_nothing(stack):
    other = stack.config_client("logs")
    other.create_log_group(logGroupName="/toolkit/demo-2")
    node = stack.node()
    for instance_id in (node, stack.head):
        with pytest.raises(Denied):
            send(stack, instance_id, "head/i-1", ("slurmctld", "x"), group="/toolkit/demo-2")
        client = stack.client("logs", instance_id)
        for operation, arguments in (
            ("filter_log_events", {"logGroupName": GROUP}),
            ("create_log_group", {"logGroupName": "/toolkit/mine"}),
            ("delete_log_group", {"logGroupName": GROUP}),
            ("put_retention_policy", {"logGroupName": GROUP, "retentionInDays": 1}),
        ):
            with pytest.raises(ClientError, match="AccessDenied"):
                getattr(client, operation)(**arguments)


def test_the_head_alone_gives_heartbeats_and_in_its_own_namespace(stack):
    clock, node = SystemClock(), stack.node()
    put_heartbeat(NAMESPACE, lambda: stack.client("cloudwatch", stack.head), clock)
    assert stack.denied() == []
    for instance_id, namespace in ((stack.head, "toolkit/demo-2"), (node, NAMESPACE)):
        with pytest.raises(Denied):
            put_heartbeat(namespace, lambda: stack.client("cloudwatch", instance_id), clock)  # noqa: B023 - called at once


def test_the_head_alone_reads_metrics(stack):
    """IAM knows neither a resource nor a namespace of GetMetricData."""
    clock, node = SystemClock(), stack.node()
    beats = [DailyMetric(NAMESPACE, "Heartbeat", (), "Sum")]
    today = int(clock.now()) // 86_400 * 86_400

    def read(instance_id):
        return daily_values(
            lambda: stack.client("cloudwatch", instance_id), clock, beats, today, today + 86_400
        )

    put_heartbeat(NAMESPACE, lambda: stack.client("cloudwatch", stack.head), clock)
    assert [item.value for item in read(stack.head)] == [1.0]
    with pytest.raises(Denied):
        read(node)


def test_a_nodes_logs_are_those_of_all_its_instances_also_of_the_lost(
    stack, shared_cluster, capsys
):
    first, second = stack.node(), stack.node()
    send(stack, first, f"gpu-001/{first}", ("slurmd", "the last words"), at=time.time() - 60)
    stack.engine(stack.head).terminate([first])
    stack.settle()
    send(stack, second, f"gpu-001/{second}", ("node-boot", "hello"), ("slurmd", "again"))
    code, lines, _ = logs(stack, shared_cluster, capsys, "gpu-001")
    assert code == 0
    assert [line.partition(" gpu-001/")[2] for line in lines] == [
        f"{first} slurmd: the last words",
        f"{second} node-boot: hello",
        f"{second} slurmd: again",
    ]
    _, lines, _ = logs(stack, shared_cluster, capsys, first)
    assert [line.partition("slurmd: ")[2] for line in lines] == ["the last words"]
    _, lines, _ = logs(stack, shared_cluster, capsys, "gpu-001", "--unit", "slurmd", "--json")
    assert [(row["instance"], row["text"]) for row in map(json.loads, lines)] == [
        (first, "the last words"),
        (second, "again"),
    ]


def test_what_lies_before_the_start_is_not_printed_and_its_time_is_told(
    stack, shared_cluster, capsys
):
    send(stack, stack.head, f"head/{stack.head}", ("slurmctld", "old"), at=time.time() - 7200)
    code, lines, error = logs(stack, shared_cluster, capsys, "head")
    assert (code, lines) == (0, [])
    assert "its last line is of" in error
    _, lines, _ = logs(stack, shared_cluster, capsys, "head", "--since", "3h")
    assert len(lines) == 1


NO_LOGS = {
    "gpu-01": "did you mean 'gpu-001'?",
    "hed": "did you mean 'head'?",
    "gpu-003": "gpu-003 has sent no line",
    "i-0123456789abcdef0": "has sent no line",
    "gpu-*": "neither a node nor an instance",
    "-x": "No such option",
}


def test_a_name_that_has_no_logs_is_an_error_that_says_so(stack, shared_cluster, capsys):
    """Ask one cluster for each name: a deploy costs more."""
    for target, words in NO_LOGS.items():
        code, lines, error = logs(stack, shared_cluster, capsys, target)
        assert (code in (1, 2), lines) == (True, []), target
        assert words in error, target


def test_a_line_can_not_control_the_terminal(stack, shared_cluster, capsys):
    send(stack, stack.head, f"head/{stack.head}", ("slurmctld", "job \x1b[2Jname"))
    _, lines, _ = logs(stack, shared_cluster, capsys, "head")
    assert lines[0].endswith("job ?[2Jname")


def test_a_silent_head_is_an_alarm_and_a_heartbeat_ends_it(stack, shared_cluster, capsys):
    """Judge as CloudWatch does: missing data breach."""

    def states():
        capsys.readouterr()
        cli.run(["status", "--json", "--config", str(shared_cluster.path)])
        return json.loads(capsys.readouterr().out)["alarms"]

    assert states() == {"head-silent": "ALARM", "head-impaired": "OK"}
    put_heartbeat(NAMESPACE, lambda: stack.client("cloudwatch", stack.head), SystemClock())
    assert states() == {"head-silent": "OK", "head-impaired": "OK"}
