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
from toolkit.local.machines.driver import Completed, Driver, MachineState
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
        self, tables: Tables, driver: Driver, defer: Callable[[Callable[[], None]], None]
    ) -> None:
        """`defer` runs a command's execution in a thread of its own."""
        self._tables = tables
        self._driver = driver
        self._defer = defer
        self._commands: dict[str, Command] = {}
        self._lock = threading.Lock()

    def install(self, patches: Patches) -> None:
        """Replace moto's commands, which always succeed and never run."""
        commands = self
        owner = SimpleSystemManagerResponse

        def send_command(response: Any) -> Any:
            params = _params(response)
            return ActionResult({"Command": _shown(commands.send(response.region, params))})

        def get_command_invocation(response: Any) -> Any:
            params = _params(response)
            return ActionResult(
                commands.invocation(str(params["CommandId"]), str(params["InstanceId"]))
            )

        def list_commands(response: Any) -> Any:
            wanted = _params(response).get("CommandId")
            found = [one for one in commands.all() if wanted in (None, one.id)]
            return ActionResult({"Commands": [_shown(one) for one in found]})

        def describe_instance_information(response: Any) -> Any:
            return ActionResult(
                {"InstanceInformationList": commands.instances(_filters(_params(response)))}
            )

        patches.replace(owner, "send_command", send_command)
        patches.replace(owner, "get_command_invocation", get_command_invocation)
        patches.replace(owner, "list_commands", list_commands)
        patches.replace(owner, "describe_instance_information", describe_instance_information)

    def all(self) -> list[Command]:
        """Return every command sent."""
        with self._lock:
            return list(self._commands.values())

    def send(self, region: str, params: Mapping[str, Any]) -> Command:
        """Start a command on instances whose machines run; returns at once."""
        if params.get("DocumentName") != DOCUMENT:
            raise JsonRESTError("InvalidDocument", f"The local cloud runs {DOCUMENT} only")
        ids = list(dict.fromkeys(params.get("InstanceIds") or self._targets(params)))
        for instance_id in ids:
            if not self._online(instance_id):
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
            life.id
            for life in self._tables.lives.values()
            if all(_matches(life.tags, life.id, target) for target in targets)
            and self._online(life.id)
        ]

    def _online(self, instance_id: str) -> bool:
        life = self._tables.lives.get(instance_id)
        if life is None or life.state != "running":
            return False
        return self._driver.state(instance_id) is MachineState.RUNNING

    def _run(self, command: Command, invocation: Invocation) -> None:
        invocation.began = self._tables.wall()
        invocation.status = "InProgress"
        work = f"{_WORK}/{command.id}"
        argv = ["/bin/sh", "-c", _RUNNER, "ssm", work, command.directory]
        try:
            done = self._driver.execute(
                invocation.instance_id, argv, timeout=command.timeout, stdin=command.script.encode()
            )
        except MachineError as error:
            done = Completed(1, b"", f"failed to run commands: {error}\n".encode())
        invocation.code, invocation.stdout, invocation.stderr = (
            done.returncode,
            done.stdout,
            done.stderr,
        )
        self._upload(command, invocation)
        invocation.ended = self._tables.wall()
        # Last: whoever sees an end may read everything else.
        invocation.status = _status(done.returncode)

    def _upload(self, command: Command, invocation: Invocation) -> None:
        bucket = command.params.get("OutputS3BucketName")
        if not bucket:
            return
        prefix = command.prefix(invocation.instance_id)
        with self._tables.lock:
            s3 = s3_backends[ACCOUNT]["aws"]
            if bucket not in s3.buckets:
                return  # the agent can't report this either
            s3.put_object(bucket, f"{prefix}/stdout", invocation.stdout)
            if invocation.stderr:
                s3.put_object(bucket, f"{prefix}/stderr", invocation.stderr)

    def invocation(self, command_id: str, instance_id: str) -> dict[str, Any]:
        """Return a command's state on one instance as GetCommandInvocation shows it."""
        with self._lock:
            command = self._commands.get(command_id)
        one = command.invocations.get(instance_id) if command else None
        if command is None or one is None:
            raise JsonRESTError("InvocationDoesNotExist", "")
        bucket = command.params.get("OutputS3BucketName")
        status = one.status
        base = f"https://s3.{command.region}.amazonaws.com/{bucket}/{command.prefix(instance_id)}"
        return {
            "CommandId": command.id,
            "InstanceId": instance_id,
            "Comment": command.params.get("Comment") or "",
            "DocumentName": DOCUMENT,
            "PluginName": PLUGIN,
            "ResponseCode": one.code,
            "ExecutionStartDateTime": _iso(one.began),
            "ExecutionElapsedTime": f"PT{max(0.0, (one.ended or 0) - (one.began or 0)):.3f}S",
            "ExecutionEndDateTime": _iso(one.ended),
            "Status": status,
            "StatusDetails": "ExecutionTimedOut" if status == "TimedOut" else status,
            "StandardOutputContent": one.stdout.decode("utf-8", "replace")[:STDOUT_LIMIT],
            "StandardOutputUrl": f"{base}/stdout" if bucket else "",
            "StandardErrorContent": one.stderr.decode("utf-8", "replace")[:STDERR_LIMIT],
            "StandardErrorUrl": f"{base}/stderr" if bucket else "",
        }

    def instances(self, wanted: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """Return the instances whose agent answers."""
        ids = wanted.get("InstanceIds")
        return [
            {
                "InstanceId": life.id,
                "PingStatus": "Online",
                "LastPingDateTime": self._tables.wall(),
                "AgentVersion": "3.3.0.0",
                "IsLatestVersion": True,
                "PlatformType": "Linux",
                "PlatformName": "Debian GNU/Linux",
                "PlatformVersion": "13",
                "ResourceType": "EC2Instance",
                "IPAddress": life.instance.private_ip,
                "ComputerName": life.instance.private_dns_name,
            }
            for life in list(self._tables.lives.values())
            if (not ids or life.id in ids) and self._online(life.id)
        ]


def _params(response: Any) -> dict[str, Any]:
    return dict(json.loads(response.body or "{}"))


def _filters(params: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return both spellings of DescribeInstanceInformation's filters as one."""
    old = {one["key"]: one["valueSet"] for one in params.get("InstanceInformationFilterList", ())}
    return old | {one["Key"]: one["Values"] for one in params.get("Filters", ())}


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


def _shown(command: Command) -> dict[str, Any]:
    return {
        "CommandId": command.id,
        "DocumentName": DOCUMENT,
        "Comment": command.params.get("Comment") or "",
        "InstanceIds": list(command.invocations),
        "Parameters": command.params.get("Parameters") or {},
        "OutputS3BucketName": command.params.get("OutputS3BucketName") or "",
        "OutputS3KeyPrefix": command.params.get("OutputS3KeyPrefix") or "",
        "RequestedDateTime": command.requested,
        "Status": command.status,
        "StatusDetails": command.status,
        "TargetCount": len(command.invocations),
        "CompletedCount": sum(one.ended is not None for one in command.invocations.values()),
    }
