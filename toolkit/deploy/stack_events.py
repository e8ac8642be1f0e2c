"""A stack's state, resources and events, as CloudFormation tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.deploy.session import error_code
from toolkit.errors import StackFailed
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.output import Phase

STACK_SECONDS = 3600.0


def stack_status(cloudformation: Any, stack: str) -> str:
    """Return the stack's state; "" when there is none."""
    try:
        stacks = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if _is_absence(error):
            return ""
        raise
    return str(stacks[0]["StackStatus"]) if stacks else ""


def stack_resource(cloudformation: Any, stack: str, logical_id: str) -> str:
    """Return the id of a stack's resource; "" while there is none."""
    try:
        response = cloudformation.describe_stack_resource(
            StackName=stack, LogicalResourceId=logical_id
        )
    except ClientError as error:
        if _is_absence(error):
            return ""
        raise
    return str(response["StackResourceDetail"].get("PhysicalResourceId") or "")


def _is_absence(error: ClientError) -> bool:
    """Return whether CloudFormation knows no such stack or resource."""
    return error_code(error) == "ValidationError" and "does not exist" in str(error)


def events(cloudformation: Any, stack: str) -> list[dict[str, Any]]:
    """Return the stack's events, oldest first; none for an unknown stack."""
    try:
        pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
        return [event for page in pages for event in page["StackEvents"]][::-1]
    except ClientError as error:
        if error_code(error) == "ValidationError":
            return []
        raise


def failures(cloudformation: Any, stack: str, past_events: frozenset[str]) -> str:
    """Return a line for each failed resource, in order.

    Events of `past_events` do not count. The first line is the cause.
    """
    return "\n".join(
        f"  {event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
        for event in events(cloudformation, stack)
        if event["EventId"] not in past_events
        and event.get("ResourceStatus", "").endswith("FAILED")
    )


def failed_resources(cloudformation: Any, stack: str) -> tuple[str, ...]:
    """Return the resources whose last event is a failed update."""
    last_states = {
        event["LogicalResourceId"]: event.get("ResourceStatus", "")
        for event in events(cloudformation, stack)
    }
    return tuple(
        name for name, state in last_states.items() if state == "UPDATE_FAILED" and name != stack
    )


def wait_for_stack(
    cloudformation: Any,
    stack: str,
    phase: Phase,
    *,
    total: int,
    past_events: frozenset[str],
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> str:
    """Wait for the end of the operation and return the state.

    Reports each finished resource. Raises StackFailed after an hour.
    """
    wait = Wait(STACK_SECONDS, sleep, clock)
    while True:
        status = stack_status(cloudformation, stack)
        finished_resources = {
            event["LogicalResourceId"]
            for event in events(cloudformation, stack)
            if event["EventId"] not in past_events
            and event.get("ResourceStatus", "").endswith("_COMPLETE")
            and event["LogicalResourceId"] != stack
        }
        phase.update(status.lower().replace("_", " "), done=len(finished_resources), total=total)
        if not status.endswith("IN_PROGRESS"):
            return status
        if wait.is_over:
            raise StackFailed(f"stack {stack} is still {status} after an hour")
        wait.pause()
