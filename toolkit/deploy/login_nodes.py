"""The login nodes of one cluster: their instances, their state, and the one for a session."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.deploy import instances, names
from toolkit.deploy.head import Head
from toolkit.deploy.stack_events import stack_resource
from toolkit.errors import StackMissing
from toolkit.explain import head_facts
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.head.report import HeadReport
    from slurmplugins.model.login_node import LoginNodeReport
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter

UP = "is up"
# An instance boots, mounts /shared and fetches slurm.conf within minutes, or never.
UP_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class LoginInstance:
    """The instance behind a login node, as EC2 has it."""

    name: str
    instance_id: str
    state: str  # EC2's; empty: the instance is gone


def find(clients: Clients, config: ClusterConfig) -> tuple[LoginInstance, ...]:
    """Return the stack's login nodes, by name.

    Tags don't prove it: whoever may launch instances can give one the tags of a login node.
    """
    cloudformation, ec2 = clients.client("cloudformation"), clients.client("ec2")
    found = []
    for name in config.login_nodes.names:
        logical_id = names.login_node(name)
        instance_id = stack_resource(cloudformation, names.stack(config), logical_id)
        instance = (
            instances.find_by_id(ec2, instance_id, instances.NOT_TERMINATING)
            if instance_id
            else None
        )
        state = str(instance["State"]["Name"]) if instance is not None else ""
        found.append(LoginInstance(name, instance_id, state))
    return tuple(found)


def choose(login_nodes: Sequence[LoginInstance], user: str) -> LoginInstance:
    """Return a running login node, for the same user the same one.

    She finds her terminal multiplexer again. Raises StackMissing without any.
    """
    running = [item for item in login_nodes if item.state == "running"]
    if not running:
        raise StackMissing(
            "no login node is running",
            next_step="run `toolkit deploy`; admins log in with `toolkit login --head`",
        )
    return running[zlib.crc32(user.encode()) % len(running)]


def lost(
    before: Mapping[str, object], login_nodes: Sequence[LoginInstance]
) -> tuple[LoginInstance, ...]:
    """Return the login nodes whose instance was terminated from outside.

    `before` has the stack's resources. CloudFormation does not notice that an instance is gone.
    """
    return tuple(
        item
        for item in login_nodes
        if item.instance_id and not item.state and names.login_node(item.name) in before
    )


def states(login_nodes: Sequence[LoginInstance], report: HeadReport) -> dict[str, str]:
    """Return the state of each login node, as a predicate."""
    reports = {item.instance_id: item for item in report.login_nodes}
    return {
        item.name: _state(item, reports.get(item.instance_id), report.at) for item in login_nodes
    }


def _state(instance: LoginInstance, report: LoginNodeReport | None, now: float) -> str:
    if not instance.state:
        return "has no instance: `toolkit deploy` makes one"
    if instance.state != "running":
        return f"is {instance.state} ({instance.instance_id})"
    if report is None:
        return f"has not reported yet ({instance.instance_id})"
    if report.is_silent(now):
        return f"is silent for {now - report.at:.0f} s ({instance.instance_id})"
    return f"does not work: {report.problem}" if report.problem else UP


def wait_until_up(
    clients: Clients,
    config: ClusterConfig,
    reporter: Reporter,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until users can work on all login nodes.

    Gives up after ten minutes. `toolkit status` names those that are not up then.
    """
    if not config.login_nodes.count:
        return
    head = Head(clients, config)
    with reporter.phase("Waiting for the login nodes") as phase:
        wait = Wait(UP_SECONDS, sleep, clock)
        while True:
            found = states(find(clients, config), head_facts.fetch_report(head, "pass"))
            count = sum(state == UP for state in found.values())
            if count == len(found) or wait.is_over:
                phase.result(f"{count} of {len(found)} up")
                return
            phase.update("booting", done=count, total=len(found))
            wait.pause()
