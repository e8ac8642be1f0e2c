"""Logs and alarms as cluster.yaml sets them, on the local cloud, and after the cluster's end."""

from __future__ import annotations

import pytest

from slurmplugins.errors import Denied
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_logs_and_alarms import GROUP, logs, send
from tests.contract.deploy.test_role_calls import Stack
from toolkit import cli
from toolkit.deploy import names

pytestmark = LEAVES_A_CLOUD
TOP = "network:\n"
"""A line of cluster.yaml before which sections may stand."""


@pytest.fixture
def stack(config):
    assert cli.run(["deploy", "--config", str(config.path)]) == 0
    return Stack(config)


def test_the_retention_is_that_of_cluster_yaml_and_a_change_keeps_the_lines(stack, config):
    send(stack, stack.head, f"head/{stack.head}", ("slurmctld", "old"))
    config.edit(TOP, "logs: {retention_days: 90}\n\n" + TOP)
    assert cli.run(["deploy", "--config", str(config.path)]) == 0
    client = stack.config_client("logs")
    (group,) = client.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
    assert group["retentionInDays"] == 90
    assert len(client.filter_log_events(logGroupName=GROUP)["events"]) == 1


def test_logs_that_are_off_have_no_group_and_no_rights(config, capsys):
    config.edit(TOP, "logs: {enabled: false}\nalarms: {enabled: false}\n\n" + TOP)
    assert cli.run(["deploy", "--config", str(config.path)]) == 0
    stack = Stack(config)
    client = stack.config_client("logs")
    assert client.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"] == []
    client.create_log_group(logGroupName=GROUP)
    with pytest.raises(Denied):
        send(stack, stack.head, "head/i-1", ("slurmctld", "x"))
    code, _, error = logs(stack, config, capsys, "head")
    assert (code, "logs-off" in error) == (1, True)


def test_alarms_go_to_the_address_and_the_topic_of_cluster_yaml(config):
    topic = "arn:aws:sns:us-east-1:123456789012:site"
    config.edit(TOP, f"alarms: {{email: hpc@example.org, topic: {topic!r}}}\n\n" + TOP)
    assert cli.run(["deploy", "--config", str(config.path)]) == 0
    stack = Stack(config)
    (subscription,) = stack.config_client("sns").list_subscriptions()["Subscriptions"]
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "hpc@example.org")
    alarms = stack.config_client("cloudwatch").describe_alarms()["MetricAlarms"]
    assert {alarm["AlarmName"] for alarm in alarms} == {
        names.alarm(config.config, subject) for subject in names.ALARMS
    }
    for alarm in alarms:
        for actions in (alarm["AlarmActions"], alarm["OKActions"]):
            assert actions == [subscription["TopicArn"], topic]


def test_a_destroyed_cluster_leaves_no_logs_and_no_alarms(stack, config):
    send(stack, stack.head, f"head/{stack.head}", ("slurmctld", "bye"))
    assert cli.run(["destroy", "--yes", "--config", str(config.path)]) == 0
    client = stack.config_client("logs")
    assert client.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"] == []
    assert stack.config_client("cloudwatch").describe_alarms()["MetricAlarms"] == []
