"""Logs and alarms in the stack: laws on the rendered template."""

from ipaddress import IPv4Network

import pytest
import yaml

from tests.unit.deploy.samples import FACTS, example
from toolkit.config.monitoring import Alarms, Logs
from toolkit.deploy.stack import stack_template
from toolkit.deploy.user_data import compute_script

TOPIC = "arn:aws:sns:us-east-1:123456789012:site"


class Loader(yaml.CSafeLoader):
    """A YAML loader with tags such as !Ref as text."""


Loader.add_multi_constructor("!", lambda loader, _, node: node.value)


def resources(**sections):
    config = example("local").model_copy(update=sections)
    return yaml.load(stack_template(config, FACTS), Loader)["Resources"]  # noqa: S506 - a safe loader


def kinds(found):
    return [item["Type"] for item in found.values()]


def rights(found, role):
    (policy,) = [
        item["PolicyDocument"]["Statement"]
        for item in found[role]["Properties"]["Policies"]
        if item["PolicyName"] in ("cluster", "node")
    ]
    return {item["Sid"]: item for item in policy}


@pytest.mark.parametrize("role", ["HeadRole", "ComputeRole"])
def test_each_instance_may_add_lines_to_the_clusters_group_and_nothing_else(role):
    statement = rights(resources(), role)["SendLogs"]
    assert statement["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert statement["Resource"] == "LogGroup.Arn"


def test_the_head_alone_may_give_heartbeats():
    statement = rights(resources(), "HeadRole")["GiveHeartbeats"]
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "toolkit/demo"}}
    assert "GiveHeartbeats" not in rights(resources(), "ComputeRole")


@pytest.mark.parametrize(
    ("alarms", "nat", "reads"),
    [(True, None, True), (False, None, False), (False, "10.0.9.0/28", True)],
)
def test_the_head_alone_reads_metrics_where_it_reaches_cloudwatch(alarms, nat, reads):
    network = example("local").network.model_copy(update={"nat_subnet": nat and IPv4Network(nat)})
    found = resources(alarms=Alarms(enabled=alarms), network=network)
    statement = rights(found, "HeadRole").get("ReadMetrics")
    assert (statement is not None) == reads
    if statement is not None:
        assert statement["Action"] == "cloudwatch:GetMetricData"
        assert statement["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}
    assert "ReadMetrics" not in rights(found, "ComputeRole")


def test_the_log_group_has_the_retention_of_cluster_yaml():
    group = resources(logs=Logs(retention_days=365))["LogGroup"]["Properties"]
    assert (group["LogGroupName"], group["RetentionInDays"]) == ("/toolkit/demo", 365)


def test_logs_that_are_off_leave_no_group_no_right_and_no_endpoint():
    found = resources(logs=Logs(enabled=False))
    assert "LogGroup" not in found
    assert "LogsEndpoint" not in found
    assert "SendLogs" not in {*rights(found, "HeadRole"), *rights(found, "ComputeRole")}
    config = example("local").model_copy(update={"logs": Logs(enabled=False)})
    assert '"log_group": null' in compute_script(config, "bucket")


def test_nodes_learn_their_log_group_from_user_data():
    assert '"log_group": "/toolkit/demo"' in compute_script(example("local"), "bucket")


def test_a_cluster_without_internet_reaches_cloudwatch_by_endpoints():
    found = resources()
    assert {"LogsEndpoint", "MonitoringEndpoint"} <= set(found)


def test_a_head_without_a_heartbeat_is_an_alarm():
    alarm = resources(alarms=Alarms(silent_minutes=7))["HeadSilentAlarm"]["Properties"]
    assert alarm["TreatMissingData"] == "breaching"
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (60, 7)
    assert "AlarmActions" not in alarm


@pytest.mark.parametrize(
    ("alarms", "actions"),
    [
        (Alarms(email="hpc@example.org"), ["AlarmTopic"]),
        (Alarms(topic=TOPIC), [TOPIC]),
        (Alarms(email="hpc@example.org", topic=TOPIC), ["AlarmTopic", TOPIC]),
    ],
)
def test_people_learn_of_both_alarms_and_of_their_end(alarms, actions):
    found = resources(alarms=alarms)
    for name in ("HeadSilentAlarm", "HeadImpairedAlarm"):
        alarm = found[name]["Properties"]
        assert alarm["AlarmActions"] == alarm["OKActions"] == actions
    assert ("AlarmEmail" in found) == (alarms.email is not None)


def test_alarms_that_are_off_leave_nothing():
    found = resources(alarms=Alarms(enabled=False, email="hpc@example.org"))
    assert not [kind for kind in kinds(found) if "CloudWatch" in kind or "SNS" in kind]
    assert "MonitoringEndpoint" not in found
    assert "GiveHeartbeats" not in rights(found, "HeadRole")
