"""Commands on the head node, with a fake SSM."""

import shlex
from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from slurmplugins.head import read_commands
from tests.unit.deploy.samples import (
    ROOT,
    Clock,
    FakeClients,
    FakeS3,
    FakeStack,
    example,
    refusal,
)
from toolkit import cli
from toolkit.deploy import session
from toolkit.deploy.head import INLINE_LIMITS, Head, find_head
from toolkit.errors import HeadCommandFailed, HeadNotReady, StackMissing

BUCKET = "demo-123456789012-us-east-1"


class FakeEc2:
    def __init__(self, state="running") -> None:
        self.state = state

    def get_paginator(self, _):
        return self

    def paginate(self, *, Filters):  # noqa: N803  # boto3's name
        self.asked = {item["Name"]: item["Values"] for item in Filters}
        if not self.state:
            return []
        when = datetime(2026, 1, 1, tzinfo=UTC)
        instance = {"InstanceId": "i-1", "State": {"Name": self.state}, "LaunchTime": when}
        return [{"Reservations": [{"Instances": [instance]}]}]


class FakeSsm:
    """SSM that runs `program(argv)`.

    As in SSM, the first question about a new command fails.
    """

    def __init__(self, program, s3) -> None:
        self.program, self.s3 = program, s3
        self.sent, self.polls, self.refuses = [], 0, ""

    def send_command(self, **request):
        if self.refuses:
            raise refusal(self.refuses)
        self.sent.append(request)
        return {"Command": {"CommandId": "c-1"}}

    def get_command_invocation(self, **_):
        self.polls += 1
        if self.polls == 1:
            raise refusal("InvocationDoesNotExist")
        if self.polls == 2:
            return {"Status": "InProgress"}
        parameters = self.sent[-1]["Parameters"]
        if "command" in parameters:
            argv = list(read_commands.decode(parameters["command"][0]))
        else:
            argv = shlex.split(parameters["commands"][0])
        code, out, err = self.program(argv)
        for stream, text in (("stdout", out), ("stderr", err)):
            key = f"ssm/c-1/i-1/awsrunShellScript/0.awsrunShellScript/{stream}"
            self.s3.objects[BUCKET, key] = text.encode()
        return {
            "Status": "Success" if code == 0 else "Failed",
            "ResponseCode": code,
            "StandardOutputContent": out[: INLINE_LIMITS["stdout"]],
            "StandardErrorContent": err[: INLINE_LIMITS["stderr"]],
        }


def head(program=lambda argv: (0, "\0".join(argv), ""), state="running"):
    s3, clock = FakeS3(), Clock()
    ssm = FakeSsm(program, s3)
    clients = FakeClients(ssm=ssm, ec2=FakeEc2(state), s3=s3, cloudformation=FakeStack())
    return Head(clients, example(), sleep=clock.sleep, clock=clock), ssm


@pytest.mark.parametrize(
    "word", ["a b", "'", '"', "$(id)", "`id`", "a;b", "a\nb", "*", "~", "", "-n", "é", "\\"]
)
def test_arguments_reach_the_head_node_unchanged(word):
    """Quote each word, because SSM takes a line of shell."""
    runner, _ = head()
    assert runner.run(["echo", word, "x"]).split("\0") == ["echo", word, "x"]


def test_output_that_ssm_truncates_is_read_from_the_bucket():
    """Read the whole output from S3.

    SSM returns 24,000 characters of standard output and 8,000 of standard error.
    """
    out, err = "x" * 100_000, "y" * 20_000
    runner, _ = head(lambda _: (0, out, err))
    assert runner.run(["sacct"]) == out
    assert head(lambda _: (0, out, err))[0].output(["sacct"]).stderr == err
    with pytest.raises(HeadCommandFailed) as caught:
        head(lambda _: (1, out, err))[0].run(["sacct"])
    assert (caught.value.stdout, caught.value.stderr) == (out, err)


@pytest.fixture
def run_on_head(monkeypatch):
    """A function that calls `toolkit run`.

    The command on the head node ends with the given result.
    """

    def call(*result):
        _, ssm = head(lambda _: result)
        clients = FakeClients(ssm=ssm, ec2=FakeEc2(), s3=ssm.s3, cloudformation=FakeStack())
        monkeypatch.setattr(session, "connected", lambda _: nullcontext(clients))
        monkeypatch.setattr("toolkit.deploy.head.FIRST_PAUSE", 0.0)
        return cli.run(["run", "--config", str(ROOT / "examples" / "local.yaml"), "--", "sacct"])

    return call


@pytest.mark.parametrize("code", [0, 3])
def test_toolkit_run_prints_both_streams_and_returns_the_exit_code(run_on_head, capsys, code):
    """Print standard error of a successful command as well."""
    assert run_on_head(code, "out\n", "sacct: warning: x\n") == code
    assert capsys.readouterr() == ("out\n", "sacct: warning: x\n")


def test_a_nonzero_exit_code_is_an_error_with_its_output():
    """Return code, standard output and standard error apart."""
    runner, _ = head(lambda _: (3, "out", "slurm: no"))
    with pytest.raises(HeadCommandFailed, match="exit code 3: slurm: no") as caught:
        runner.run(["scontrol", "x"])
    assert (caught.value.returncode, caught.value.stdout) == (3, "out")


def test_a_command_has_the_execution_timeout_of_its_caller():
    """Pass the timeout to SSM's agent, which then kills the command."""
    runner, ssm = head()
    runner.run(["sleep", "1"], timeout=17)
    assert ssm.sent[0]["Parameters"]["executionTimeout"] == ["17"]


def test_a_command_over_its_timeout_is_an_error():
    """Raise an error after the timeout, even if SSM says InProgress."""
    runner, ssm = head()
    ssm.get_command_invocation = lambda **_: {"Status": "InProgress"}
    with pytest.raises(HeadCommandFailed, match="ran longer than 5 s"):
        runner.run(["sleep", "9"], timeout=5)


def test_a_missing_head_node_and_one_that_is_not_ready_are_different_errors():
    """Suggest a deploy for the one, and patience for the other."""
    with pytest.raises(StackMissing, match="no head node"):
        head(state="")[0].run(["true"])
    with pytest.raises(HeadNotReady, match="is pending"):
        head(state="pending")[0].run(["true"])
    runner, ssm = head()
    ssm.refuses = "InvalidInstanceId"
    with pytest.raises(HeadNotReady, match="takes no commands yet"):
        runner.run(["true"])


def test_the_head_is_the_instance_that_the_stack_made_and_no_other():
    """Ask EC2 for one id, and for no tag."""
    ec2 = FakeEc2()
    clients = FakeClients(ec2=ec2, cloudformation=FakeStack("i-1"))
    assert find_head(clients, example())["InstanceId"] == "i-1"
    assert ec2.asked["instance-id"] == ["i-1"]
    assert not [name for name in ec2.asked if name.startswith("tag:")]


def test_a_stack_without_a_head_has_none():
    assert find_head(FakeClients(cloudformation=FakeStack("")), example()) is None


def test_a_refusal_of_cloudformation_is_not_taken_for_a_missing_head():
    stack = FakeStack()

    def refuse(**_):
        raise refusal("AccessDenied", "not authorized")

    stack.describe_stack_resource = refuse
    with pytest.raises(ClientError, match="not authorized"):
        find_head(FakeClients(cloudformation=stack), example())


def test_a_command_that_reads_goes_by_the_document_for_readers():
    """Send it as one word, which means nothing to a shell."""
    runner, ssm = head()
    assert runner.run(["scontrol", "ping"]).split("\0") == ["scontrol", "ping"]
    (sent,) = ssm.sent
    assert sent["DocumentName"] == "toolkit-demo-read"
    assert read_commands.decode(sent["Parameters"]["command"][0]) == ("scontrol", "ping")
    assert "commands" not in sent["Parameters"]


def test_every_other_command_goes_by_amazons_own_document():
    runner, ssm = head()
    runner.run(["scontrol", "update", "nodename=gpu-001", "state=down"])
    assert ssm.sent[0]["DocumentName"] == "AWS-RunShellScript"
