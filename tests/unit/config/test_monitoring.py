"""Logs and alarms in cluster.yaml."""

import pytest

from tests.unit.config.test_load import GOOD, problems
from toolkit.config import parse

TOPIC = "arn:aws:sns:us-east-1:123456789012:site"


def test_logs_are_kept_and_alarms_made_by_default():
    config = parse(GOOD)
    assert (config.logs.enabled, config.logs.retention_days) == (True, 30)
    assert (config.alarms.enabled, config.alarms.silent_minutes) == (True, 10)


def test_an_address_and_a_topic_may_be_given_together():
    config = parse(f"{GOOD}alarms: {{email: hpc@example.org, topic: '{TOPIC}'}}\n")
    assert (config.alarms.email, config.alarms.topic) == ("hpc@example.org", TOPIC)


@pytest.mark.parametrize(
    ("section", "path", "words"),
    [
        ("logs: {retention_days: 31}", "logs.retention_days", "30"),
        ("logs: {retention_days: 30d}", "logs.retention_days", "30"),
        ("logs: off", "logs", ""),
        ("alarms: {silent_minutes: 1}", "alarms.silent_minutes", "3"),
        ("alarms: {email: nobody}", "alarms.email", "an email address"),
        ("alarms: {email: 'a@b.c\\nd@e.f'}", "alarms.email", "an email address"),
        ("alarms: {topic: site}", "alarms.topic", "the ARN of an SNS topic"),
        (f"alarms: {{topic: '{TOPIC.replace('east', 'west')}'}}", "alarms.topic", "us-west-1"),
    ],
)
def test_values_that_can_not_work_are_refused_at_their_key(section, path, words):
    found = problems(f"{GOOD}{section}\n")
    assert list(found) == [path]
    assert words in found[path][1]
