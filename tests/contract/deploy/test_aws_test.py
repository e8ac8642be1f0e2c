"""`make aws-test` on a cloud without machines: the run, and its clean-up after every end."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmplugins.slurm import sacct as call
from tests.aws.__main__ import main
from tests.aws.commands import CommandFailed
from tests.aws.place import Place, cluster_yaml
from tests.aws.sizes import SIZES
from tests.contract.deploy.conftest import LEAVES_A_CLOUD, said
from tests.patience import PROGRAM_SECONDS
from toolkit import cli
from toolkit.config import parse
from toolkit.deploy.session import Clients
from toolkit.deploy.tagged_resources import find_resources
from toolkit.local.machines.driver import CommandResult

pytestmark = LEAVES_A_CLOUD
ROOT = Path(__file__).parents[3]
OUTPUT = f"== memlock\nunlimited\n== work\n{'0' * 64}  /shared/x\n"


class Run:
    """The program's options for a test's own cloud."""

    def __init__(self, config, tmp_path) -> None:
        self.work = tmp_path / "work"
        aws = config.config.aws
        self.words = [
            *("small", "--cap-usd", "20", "--work", str(self.work)),
            *("--endpoint-url", aws.endpoint_url, "--profile", aws.profile),
            *("--credentials-file", aws.credentials_file),
        ]
        place = Place(
            "us-east-1", "us-east-1a", aws.profile, aws.endpoint_url, aws.credentials_file
        )
        self.cluster = parse(cluster_yaml(SIZES["small"], place))
        # The actor works for this cluster, and no longer for the example's.
        self.clients = config.actor.clients = Clients(self.cluster)
        self.state, self.output = "COMPLETED", OUTPUT
        self._answer = config.actor.driver.execute
        config.actor.driver.execute = self.execute

    def execute(self, instance_id, argv, *, timeout, stdin=b""):
        """Answer for slurmctld and the user's home."""
        script = said(stdin.decode())
        text = script + " ".join(argv)
        if "sbatch --parsable" in text:
            return CommandResult(0, b"1\n", b"")
        if "scontrol show job" in text:
            times = {"submit_time": 100, "start_time": {"number": 160}, "end_time": 170}
            job = {"job_state": [self.state], **times}
            return CommandResult(0, json.dumps({"jobs": [job]}).encode(), b"")
        if "slurm-1.out" in text:
            return CommandResult(0, self.output.encode(), b"")
        if "--helpformat" in text:
            return CommandResult(0, " ".join((*call.REQUIRED, *call.FREE_TEXT)).encode(), b"")
        # The fake slurmdbd knows one cluster, the example's.
        script = script.replace(self.cluster.cluster, "demo")
        return self._answer(instance_id, argv, timeout=timeout, stdin=script.encode())

    @property
    def record(self):
        return json.loads((self.work / "small/record.json").read_text())

    def left(self):
        """Return all that the account still has of a run."""
        stacks = self.clients.client("cloudformation").describe_stacks()["Stacks"]
        images = self.clients.client("ec2").describe_images(Owners=["self"])["Images"]
        return [*find_resources(self.clients, self.cluster), *stacks, *images]

    def program(self, *words):
        # A shell's background job hands on an ignored SIGINT.
        python = ("env", "--default-signal=INT", sys.executable)
        return subprocess.Popen([*python, "-m", "tests.aws", *words], cwd=ROOT)

    def until_a_stack_exists(self):
        deadline = time.monotonic() + 4 * PROGRAM_SECONDS
        while not self.clients.client("cloudformation").describe_stacks()["Stacks"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture
def aws_test(config, tmp_path):
    return Run(config, tmp_path)


def command_here(config, deadline, *argv, show=True):
    """Run a command as `commands.toolkit` does, but in this process.

    Each process would import the CLI and boto3 again. The tests that do not ask for this have
    processes: one that succeeds, one that is interrupted and one that is killed.
    """
    if not deadline.left:
        raise CommandFailed(f"no time is left for toolkit {argv[0]}")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = cli.run([*argv, "--config", str(config)])
    if code:
        raise CommandFailed(f"toolkit {argv[0]} exited {code}\n{output.getvalue()}")
    return output.getvalue()


@pytest.fixture
def commands_here(monkeypatch):
    monkeypatch.setattr("tests.aws.run.toolkit", command_here)


def test_a_run_records_what_it_saw_and_leaves_nothing(aws_test):
    """Deploy, run the job, keep the figures, and destroy all."""
    assert main(aws_test.words) == 0, aws_test.record
    record = aws_test.record
    assert record["passed"]
    assert record["figures"]["submit_to_start_seconds"] == 60
    assert record["figures"].keys() >= {"deploy_seconds", "destroy_seconds", "instances_usd"}
    assert record["seen"]["memlock"] == "unlimited"
    assert aws_test.left() == []
    assert main(["clean", "--work", str(aws_test.work)]) == 0, "nothing is left to clean"


def test_a_job_that_fails_is_recorded_and_cleaned_up_after(aws_test, commands_here):
    """Exit with 1 and name what was not seen."""
    aws_test.state, aws_test.output = "FAILED", "== memlock\nunlimited\n"
    assert main(aws_test.words) == 1
    assert aws_test.record["cleaned"]
    assert any("the job is FAILED" in one for one in aws_test.record["problems"])
    assert any(one.startswith("work: expected") for one in aws_test.record["problems"])
    assert aws_test.left() == []


def test_an_interrupted_run_cleans_up_first(aws_test):
    """Send SIGINT while the deploy makes stacks."""
    with aws_test.program(*aws_test.words) as program:
        aws_test.until_a_stack_exists()
        program.send_signal(signal.SIGINT)
        assert program.wait(4 * PROGRAM_SECONDS) == 1
    assert "interrupted" in aws_test.record["problems"]
    assert aws_test.left() == []


def test_a_second_command_cleans_up_after_a_kill_9(aws_test, commands_here):
    """Kill the program alone: its deploy ends, and `clean` deletes the rest."""
    with aws_test.program(*aws_test.words) as program:
        aws_test.until_a_stack_exists()
        program.kill()
    assert (aws_test.work / "small/unfinished.json").exists()
    assert main(aws_test.words) == 2, "no other run begins before that"
    assert main(["clean", "--work", str(aws_test.work)]) == 0
    assert aws_test.left() == []
    assert not (aws_test.work / "small/unfinished.json").exists()


def test_a_run_that_reaches_its_deadline_is_cleaned_up(aws_test, commands_here):
    """Give it no time at all."""
    assert main([*aws_test.words, "--minutes", "0"]) == 1
    assert aws_test.record["cleaned"]
    assert aws_test.left() == []
