"""SSM Run Command: commands that really run in the machine."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.s3.models import s3_backends
from moto.ssm.responses import SimpleSystemManagerResponse

from toolkit.local.aws.ssm_command import Command, Invocation
from toolkit.local.aws.ssm_documents import shell_parameters
from toolkit.local.machines.driver import CommandResult, Driver, MachineState
from toolkit.local.machines.errors import MachineError
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.moto_patches import Patches

DOCUMENT = "AWS-RunShellScript"
PLUGIN = "aws:runShellScript"
STDOUT_LIMIT, STDERR_LIMIT = 24_000, 8_000  # characters GetCommandInvocation returns
_TIMED_OUT = 124
# As the agent does: the script is a file of root's, run by sh, gone afterwards. Nothing of it is
# ever an argument, so nothing of it shows in a process list.
_RUNNER = (
    'd="$1"; (umask 077; mkdir -p "$d" && cat > "$d/_script.sh") || exit 1; '
    'cd "${2:-/}" && /bin/sh "$d/_script.sh" </dev/null; rc=$?; rm -rf "$d"; exit "$rc"'
)
_WORK = "/var/lib/amazon/ssm/document/orchestration"


class Commands:
    """Run Command over a machine driver."""

    def __init__(
        self,
        tables: Tables,
        driver: Driver,
        defer: Callable[[Callable[[], None]], None],
        may_put: Callable[[str, str, str], bool],
    ) -> None:
        """`defer` runs a command's execution in a thread of its own.

        `may_put` tells if an instance may write to a bucket and key.
        """
        self._may_put = may_put
        self._tables = tables
        self._driver = driver
        self._defer = defer
        self._commands: dict[str, Command] = {}
        self._lock = threading.Lock()

    def install(self, patches: Patches) -> None:
        """Replace moto's commands, which always succeed and never run."""
        commands = self
        response_class = SimpleSystemManagerResponse

        def send_command(response: Any) -> Any:
            params = _params(response)
            return ActionResult({"Command": _command_dict(commands.send(response.region, params))})

        def get_command_invocation(response: Any) -> Any:
            params = _params(response)
            return ActionResult(
                commands.invocation(str(params["CommandId"]), str(params["InstanceId"]))
            )

        def list_commands(response: Any) -> Any:
            command_id = _params(response).get("CommandId")
            matching_commands = [
                command for command in commands.all() if command_id in (None, command.id)
            ]
            return ActionResult(
                {"Commands": [_command_dict(command) for command in matching_commands]}
            )

        def describe_instance_information(response: Any) -> Any:
            return ActionResult(
                {"InstanceInformationList": commands.instances(_filters(_params(response)))}
            )

        patches.replace(response_class, "send_command", send_command)
        patches.replace(response_class, "get_command_invocation", get_command_invocation)
        patches.replace(response_class, "list_commands", list_commands)
        patches.replace(
            response_class, "describe_instance_information", describe_instance_information
        )

    def all(self) -> list[Command]:
        """Return every command sent."""
        with self._lock:
            return list(self._commands.values())

    def send(self, region: str, params: Mapping[str, Any]) -> Command:
        """Start a command on instances whose machines run; returns at once."""
        name = str(params.get("DocumentName"))
        if name != DOCUMENT:
            given = params.get("Parameters") or {}
            params = {**params, "Parameters": shell_parameters(region, name, given)}
        ids = list(dict.fromkeys(params.get("InstanceIds") or self._targets(params)))
        for instance_id in ids:
            if not self._is_online(instance_id):
                raise JsonRESTError(
                    "InvalidInstanceId", f"Instances [[{instance_id}]] not in a valid state"
                )
        command = Command(str(uuid.uuid4()), region, params, self._tables.wall())
        command.invocations = {instance_id: Invocation(instance_id) for instance_id in ids}
        with self._lock:
            self._commands[command.id] = command
        for invocation in command.invocations.values():
            self._start(command, invocation)
        return command

    def _start(self, command: Command, invocation: Invocation) -> None:
        self._defer(lambda: self._run(command, invocation))

    def _targets(self, params: Mapping[str, Any]) -> list[str]:
        targets = params.get("Targets") or ()
        return [
            instance.id
            for instance in self._tables.instances.values()
            if all(_matches(instance.tags, instance.id, target) for target in targets)
            and self._is_online(instance.id)
        ]

    def _is_online(self, instance_id: str) -> bool:
        instance = self._tables.instances.get(instance_id)
        if instance is None or instance.state != "running":
            return False
        return self._driver.state(instance_id) is MachineState.RUNNING

    def _run(self, command: Command, invocation: Invocation) -> None:
        invocation.started_at = self._tables.wall()
        invocation.status = "InProgress"
        work_directory = f"{_WORK}/{command.id}"
        argv = ["/bin/sh", "-c", _RUNNER, "ssm", work_directory, command.directory]
        try:
            result = self._driver.execute(
                invocation.instance_id, argv, timeout=command.timeout, stdin=command.script.encode()
            )
        except MachineError as error:
            result = CommandResult(1, b"", f"failed to run commands: {error}\n".encode())
        invocation.code, invocation.stdout, invocation.stderr = (
            result.returncode,
            result.stdout,
            result.stderr,
        )
        self._upload(command, invocation)
        invocation.ended_at = self._tables.wall()
        # Last: whoever sees an end may read everything else.
        invocation.status = _status(result.returncode)

    def _upload(self, command: Command, invocation: Invocation) -> None:
        bucket = command.params.get("OutputS3BucketName")
        if not bucket:
            return
        prefix = command.prefix(invocation.instance_id)
        with self._tables.lock:
            s3 = s3_backends[ACCOUNT]["aws"]
            if bucket not in s3.buckets:
                return  # the agent can't report this either
            if not self._may_put(invocation.instance_id, str(bucket), f"{prefix}/stdout"):
                return
            s3.put_object(bucket, f"{prefix}/stdout", invocation.stdout)
            if invocation.stderr:
                s3.put_object(bucket, f"{prefix}/stderr", invocation.stderr)

    def invocation(self, command_id: str, instance_id: str) -> dict[str, Any]:
        """Return a command's state on one instance as GetCommandInvocation shows it."""
        with self._lock:
            command = self._commands.get(command_id)
        invocation = command.invocations.get(instance_id) if command else None
        if command is None or invocation is None:
            raise JsonRESTError("InvocationDoesNotExist", "")
        bucket = command.params.get("OutputS3BucketName")
        status = invocation.status
        base = f"https://s3.{command.region}.amazonaws.com/{bucket}/{command.prefix(instance_id)}"
        return {
            "CommandId": command.id,
            "InstanceId": instance_id,
            "Comment": command.params.get("Comment") or "",
            "DocumentName": command.params["DocumentName"],
            "PluginName": PLUGIN,
            "ResponseCode": invocation.code,
            "ExecutionStartDateTime": _iso(invocation.started_at),
            "ExecutionElapsedTime": f"PT{invocation.seconds:.3f}S",
            "ExecutionEndDateTime": _iso(invocation.ended_at),
            "Status": status,
            "StatusDetails": "ExecutionTimedOut" if status == "TimedOut" else status,
            "StandardOutputContent": invocation.stdout.decode("utf-8", "replace")[:STDOUT_LIMIT],
            "StandardOutputUrl": f"{base}/stdout" if bucket else "",
            "StandardErrorContent": invocation.stderr.decode("utf-8", "replace")[:STDERR_LIMIT],
            "StandardErrorUrl": f"{base}/stderr" if bucket else "",
        }

    def instances(self, filters: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """Return the instances whose agent answers."""
        ids = filters.get("InstanceIds")
        return [
            {
                "InstanceId": instance.id,
                "PingStatus": "Online",
                "LastPingDateTime": self._tables.wall(),
                "AgentVersion": "3.3.0.0",
                "IsLatestVersion": True,
                "PlatformType": "Linux",
                "PlatformName": "Debian GNU/Linux",
                "PlatformVersion": "13",
                "ResourceType": "EC2Instance",
                "IPAddress": instance.row.private_ip,
                "ComputerName": instance.row.private_dns_name,
            }
            for instance in list(self._tables.instances.values())
            if (not ids or instance.id in ids) and self._is_online(instance.id)
        ]


def _params(response: Any) -> dict[str, Any]:
    return dict(json.loads(response.body or "{}"))


def _filters(params: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return both spellings of DescribeInstanceInformation's filters as one."""
    legacy_filters = {
        entry["key"]: entry["valueSet"] for entry in params.get("InstanceInformationFilterList", ())
    }
    return legacy_filters | {entry["Key"]: entry["Values"] for entry in params.get("Filters", ())}


def _matches(tags: Mapping[str, str], instance_id: str, target: Mapping[str, Any]) -> bool:
    key, values = str(target["Key"]), target["Values"]
    if key == "InstanceIds":
        return instance_id in values
    return tags.get(key.removeprefix("tag:")) in values


def _status(code: int) -> str:
    if code == 0:
        return "Success"
    return "TimedOut" if code == _TIMED_OUT else "Failed"


def _iso(moment: float | None) -> str:
    if moment is None:
        return ""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _command_dict(command: Command) -> dict[str, Any]:
    return {
        "CommandId": command.id,
        "DocumentName": command.params["DocumentName"],
        "Comment": command.params.get("Comment") or "",
        "InstanceIds": list(command.invocations),
        "Parameters": command.params.get("Parameters") or {},
        "OutputS3BucketName": command.params.get("OutputS3BucketName") or "",
        "OutputS3KeyPrefix": command.params.get("OutputS3KeyPrefix") or "",
        "RequestedDateTime": command.requested_at,
        "Status": command.status,
        "StatusDetails": command.status,
        "TargetCount": len(command.invocations),
        "CompletedCount": sum(
            invocation.ended_at is not None for invocation in command.invocations.values()
        ),
    }
