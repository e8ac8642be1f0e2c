"""Set-up of the head node from a bundle.

A booting head node sets itself up. A running one gets a command.
"""

import json
from datetime import UTC, datetime

import pytest

from tests.unit.deploy.samples import Clock, FakeClients, FakeS3, FakeStack, Report, example
from toolkit.deploy.head_setup import BOOT_PROGRAM, SILENT_SECONDS, STALE_SECONDS, HeadSetup
from toolkit.deploy.storage import Bucket
from toolkit.errors import HeadNotReady

LAUNCHED = 900.0
KEY = ("demo-123456789012-us-east-1", "status/head.json")


class FakeHead:
    """A head node that writes its status at planned times."""

    def __init__(self) -> None:
        self.clock, self.s3, self.commands, self.tags = Clock(1000.0), FakeS3(), [], {}
        clients = FakeClients(ec2=self, ssm=self, s3=self.s3, cloudformation=FakeStack())
        bucket = Bucket(self.s3, KEY[0])
        self.boot = HeadSetup(
            clients, example(), bucket, sleep=self.clock.sleep, clock=self.clock, now=self.clock
        )
        self.phase = Report()
        self.on_command = lambda: None

    def write_status(self, state, bundle="new", at=None, **fields):
        body = {"state": state, "bundle": bundle, "at": at or self.clock.now, "total": 9, **fields}
        self.s3.objects[KEY] = json.dumps(body).encode()

    def get_paginator(self, _):
        return self

    def paginate(self, **_):
        when = datetime.fromtimestamp(LAUNCHED, UTC)
        instance = {"InstanceId": "i-1", "State": {"Name": "running"}, "LaunchTime": when}
        return [{"Reservations": [{"Instances": [instance]}]}]

    def send_command(self, **request):
        self.commands.append(request["Parameters"]["commands"][0])
        assert KEY not in self.s3.objects, "what an older run said is still there"
        self.on_command()
        return {"Command": {"CommandId": "c-1"}}

    def create_tags(self, *, Resources, Tags):  # noqa: N803  # boto3's names
        assert Resources == ["i-1"]
        self.tags |= {item["Key"]: item["Value"] for item in Tags}

    def get_console_output(self, **_):
        return {"Output": "kernel panic"}


def test_set_up_waits_for_a_booting_head_node_without_a_command():
    """Send no command, because the node's user data fetches the bundle.

    A second set-up beside it would only be in the way.
    """
    fake = FakeHead()
    fake.clock.at(5, lambda: fake.write_status("running", task="Install", done=3))
    fake.clock.at(9, lambda: fake.write_status("ok"))
    fake.boot.set_up_from("new", fake.phase)
    assert fake.commands == []
    assert fake.tags == {"toolkit:bundle": "new"}, "the head node waits for it"
    assert "Install" in fake.phase.updates


def test_set_up_commands_a_running_head_node_to_take_the_new_bundle():
    """Send one command through SSM for a new bundle."""
    fake = FakeHead()
    fake.write_status("ok", bundle="old")
    fake.on_command = lambda: fake.write_status("ok")
    fake.boot.set_up_from("new", fake.phase)
    assert fake.commands == [f"{BOOT_PROGRAM} new"]


def test_set_up_leaves_an_up_to_date_head_node_alone():
    """Send no command if the bundle is the same."""
    fake = FakeHead()
    fake.write_status("ok")
    fake.boot.set_up_from("new", fake.phase)
    assert fake.commands == []


def test_the_status_of_an_earlier_head_node_is_ignored():
    """Ignore a status that is older than the instance.

    The bucket outlives the instance.
    """
    fake = FakeHead()
    fake.write_status("ok", at=LAUNCHED - 1)
    assert not fake.boot.is_set_up_from("new")
    assert fake.boot.status() is None


def test_a_failed_set_up_is_repeated_by_the_next_deploy():
    """Send the command again after a failed set-up."""
    fake = FakeHead()
    fake.write_status("failed", error="disk full")
    fake.on_command = lambda: fake.write_status("ok")
    fake.boot.set_up_from("new", fake.phase)
    assert fake.commands == [f"{BOOT_PROGRAM} new"]


def test_a_set_up_with_a_stale_status_is_started_again():
    """Take a status that stays `running` for that of a killed set-up."""
    fake = FakeHead()
    fake.clock.now += STALE_SECONDS * 2
    fake.write_status("running", at=fake.clock.now - STALE_SECONDS - 1)
    fake.on_command = lambda: fake.write_status("ok")
    fake.boot.set_up_from("new", fake.phase)
    assert fake.commands == [f"{BOOT_PROGRAM} new"]


def test_a_set_up_in_progress_is_waited_for():
    """Wait for the set-up of another deploy, so that one playbook runs."""
    fake = FakeHead()
    fake.write_status("running")
    fake.clock.at(3, lambda: fake.write_status("ok"))
    fake.boot.set_up_from("new", fake.phase)
    assert fake.commands == []


def test_a_head_node_without_a_status_is_commanded_once():
    """Send the command if the first boot gave up on the bundle.

    SSM reaches the instance all the same.
    """
    fake = FakeHead()
    fake.on_command = lambda: fake.write_status("ok")
    fake.boot.set_up_from("new", fake.phase)
    assert fake.commands == [f"{BOOT_PROGRAM} new"]
    assert fake.clock.now > 1000 + SILENT_SECONDS


def test_a_failed_playbook_is_reported_with_its_task_and_the_end_of_its_log():
    """Report the failed task, its error and the log's place."""
    fake = FakeHead()
    fake.clock.at(
        2,
        lambda: fake.write_status(
            "failed", task="Install", error="no space", log_tail="a\nb\nlast"
        ),
    )
    with pytest.raises(HeadNotReady, match="Install") as caught:
        fake.boot.set_up_from("new", fake.phase)
    assert "no space" in caught.value.message
    assert "last" in caught.value.message
    assert "status/head.log" in caught.value.next_step


def test_the_tag_names_the_bundle_before_a_command_starts_it():
    """Write the tag before the command is sent."""
    fake = FakeHead()
    fake.write_status("ok", bundle="old")

    def started():
        assert fake.tags == {"toolkit:bundle": "new"}
        fake.write_status("ok")

    fake.on_command = started
    fake.boot.run_again("new", fake.phase)
    assert fake.commands == [f"{BOOT_PROGRAM} new"]
