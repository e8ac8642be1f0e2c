"""Stops the head instance for an update of the stack that takes it away.

EC2 does not detach a volume that a running instance has mounted: the detachment stays
`busy`, and the update with it. A stopped instance has written everything and holds nothing.
https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-ec2-volumeattachment.html
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolkit.deploy.head import find_head
from toolkit.deploy.instances import RUNNING
from toolkit.errors import HeadNotReady
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter

STOP_SECONDS = 900.0


@contextmanager
def stopped_head(
    clients: Clients,
    config: ClusterConfig,
    report: Reporter,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Keep the head instance stopped inside the block.

    After a failure, an instance that is still there is started again.
    """
    ec2, head = clients.client("ec2"), find_head(clients, config)
    if head is None or head["State"]["Name"] not in RUNNING:
        yield
        return
    instance = head["InstanceId"]
    try:
        with report.phase("Stopping the head node's instance") as phase:
            ec2.stop_instances(InstanceIds=[instance])
            _wait_until_stopped(ec2, instance, sleep, clock)
            phase.result(instance)
        yield
    except BaseException:
        remaining = find_head(clients, config)
        is_same = remaining is not None and remaining["InstanceId"] == instance
        if is_same and _state(ec2, instance) not in RUNNING:
            _wait_until_stopped(ec2, instance, sleep, clock)
            ec2.start_instances(InstanceIds=[instance])
        raise


def _wait_until_stopped(
    ec2: Any, instance: str, sleep: Callable[[float], None], clock: Callable[[], float]
) -> None:
    wait = Wait(STOP_SECONDS, sleep, clock)
    while (state := _state(ec2, instance)) != "stopped":
        if wait.is_over:
            raise HeadNotReady(
                f"head node {instance} is {state} for {STOP_SECONDS / 60:.0f} minutes",
                next_step="stop it in EC2 with --force, then run deploy again",
            )
        wait.pause()


def _state(ec2: Any, instance: str) -> str:
    groups = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    return str(groups[0]["Instances"][0]["State"]["Name"])
