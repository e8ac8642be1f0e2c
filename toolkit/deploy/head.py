"""Runs commands on the head node as root, through SSM RunCommand."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slurmplugins.head import read_commands
from toolkit.deploy import instances, names
from toolkit.deploy.head_change import HEAD
from toolkit.deploy.session import error_code
from toolkit.deploy.stack_events import stack_resource
from toolkit.deploy.storage import Bucket
from toolkit.errors import HeadCommandFailed, HeadNotReady, StackMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients

# SSM cuts each stream at this many characters; the whole stream is in the bucket.
INLINE_LIMITS = {"stdout": 24_000, "stderr": 8_000}
# SSM gives a command up if the agent does not answer for this long (30 is its minimum).
DELIVERY_SECONDS = 30
SHELL = "AWS-RunShellScript"
RUNNING = {"Pending", "InProgress", "Delayed", "Cancelling"}
NO_AGENT = {"InvalidInstanceId", "TargetNotConnected"}
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
MAX_STDERR = 2000


@dataclass(frozen=True, slots=True)
class Output:
    """The streams of a command that succeeded."""

    stdout: str
    stderr: str


class Head:
    """The head node of one cluster; its instance is looked up in the stack when first needed."""

    def __init__(
        self,
        clients: Clients,
        config: ClusterConfig,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = clients
        self._config = config
        self._sleep = sleep
        self._clock = clock
        self._instance_id = ""

    @property
    def instance_id(self) -> str:
        """Return the running instance's id.

        Raises StackMissing without an instance, HeadNotReady if it is not running.
        """
        if not self._instance_id:
            instance = find_head(self._clients, self._config)
            if instance is None:
                raise StackMissing(
                    f"cluster {self._config.cluster} has no head node",
                    next_step="run `toolkit deploy`",
                )
            if instance["State"]["Name"] != "running":
                raise HeadNotReady(
                    f"head node {instance['InstanceId']} is {instance['State']['Name']}"
                )
            self._instance_id = instance["InstanceId"]
        return self._instance_id

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        """Run one argv and return its standard output.

        Raises HeadCommandFailed for any exit code but 0, and when it takes longer than
        `timeout` seconds.
        """
        return self.output(argv, timeout=timeout).stdout

    def output(self, argv: Sequence[str], *, timeout: float = 60) -> Output:
        """Run one argv and return both its streams; raises as `run` does."""
        command = self.start(argv, timeout=timeout)
        return self.finish(command, argv, timeout=timeout)

    def start(self, argv: Sequence[str], *, timeout: float) -> str:
        """Send one argv and return the command's id at once.

        Raises HeadNotReady while the agent takes no commands.
        """
        parameters = {"executionTimeout": [str(max(int(timeout), 1))]}
        if read_commands.is_read(argv):
            # A person who may only look has the right to this document alone.
            document = names.read_document(self._config)
            parameters["command"] = [read_commands.encode(argv)]
        else:
            document, parameters["commands"] = SHELL, [shlex.join(argv)]
        try:
            sent = self._clients.client("ssm").send_command(
                InstanceIds=[self.instance_id],
                DocumentName=document,
                Comment=f"toolkit: {argv[0]}"[:100],
                TimeoutSeconds=DELIVERY_SECONDS,
                Parameters=parameters,
                OutputS3BucketName=self._bucket.name,
                OutputS3KeyPrefix=names.COMMAND_OUTPUT,
            )
        except ClientError as error:
            if error_code(error) in NO_AGENT:
                raise HeadNotReady(
                    f"head node {self.instance_id} takes no commands yet",
                    next_step="`toolkit status` shows the progress of its set-up",
                ) from error
            raise
        return sent["Command"]["CommandId"]

    def finish(self, command: str, argv: Sequence[str], *, timeout: float) -> Output:
        """Wait for a command that was started; raises as `run` does."""
        deadline = self._clock() + timeout + DELIVERY_SECONDS
        pause = FIRST_PAUSE
        while (invocation := self.invocation(command)) is None or invocation["Status"] in RUNNING:
            if self._clock() > deadline:
                raise HeadCommandFailed(
                    f"{argv[0]} on the head node ran longer than {timeout:.0f} s"
                )
            self._sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
        return self._output(command, invocation, argv)

    def invocation(self, command: str) -> dict[str, Any] | None:
        """Return SSM's record of a command; None shortly after it was sent."""
        try:
            return dict(
                self._clients.client("ssm").get_command_invocation(
                    CommandId=command, InstanceId=self.instance_id
                )
            )
        except ClientError as error:
            if error_code(error) == "InvocationDoesNotExist":
                return None
            raise

    @property
    def _bucket(self) -> Bucket:
        name = names.bucket(self._config, self._clients.account)
        return Bucket(self._clients.client("s3"), name)

    def _output(self, command: str, invocation: dict[str, Any], argv: Sequence[str]) -> Output:
        stdout = self._full_stream(
            command, "stdout", str(invocation.get("StandardOutputContent") or "")
        )
        stderr = self._full_stream(
            command, "stderr", str(invocation.get("StandardErrorContent") or "")
        )
        if invocation["Status"] == "Success":
            return Output(stdout, stderr)
        code = int(invocation.get("ResponseCode", -1))
        message = (stderr or stdout or str(invocation.get("StatusDetails", ""))).strip()[
            -MAX_STDERR:
        ]
        raise HeadCommandFailed(
            f"{shlex.join(argv)[:200]} on the head node: exit code {code}: {message}",
            returncode=code,
            stdout=stdout,
            stderr=stderr,
        )

    def _full_stream(self, command: str, stream: str, inline: str) -> str:
        if len(inline) < INLINE_LIMITS[stream]:
            return inline
        key = (
            f"{names.COMMAND_OUTPUT}/{command}/{self.instance_id}"
            f"/awsrunShellScript/0.awsrunShellScript/{stream}"
        )
        data = self._bucket.read(key)
        if data is None:
            raise HeadCommandFailed(
                f"SSM cut the output of command {command}, and the bucket has no object {key}"
            )
        return data.decode(errors="replace")


def find_head(clients: Clients, config: ClusterConfig) -> InstanceTypeDef | None:
    """Return the stack's head instance if it isn't terminated, or None.

    Tags don't prove it: whoever may launch instances in the account can give one the head's tags.
    """
    stack = names.stack(config)
    instance_id = stack_resource(clients.client("cloudformation"), stack, HEAD)
    if not instance_id:
        return None
    return instances.find_by_id(clients.client("ec2"), instance_id, instances.NOT_TERMINATING)
