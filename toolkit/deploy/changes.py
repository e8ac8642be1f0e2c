"""Change sets of one stack: made, shown, then executed or discarded."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import ClientError
from ruamel.yaml import YAML

from toolkit.deploy.diff import differences
from toolkit.deploy.session import error_code
from toolkit.errors import StackFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_cloudformation.type_defs import DescribeChangeSetOutputTypeDef

    from toolkit.deploy.session import Clients
    from toolkit.output import Phase

# CloudFormation's limit for a template in a request; a larger one must be in a bucket.
MAX_BODY = 51_200
POLL_SECONDS = 2.0
CHANGE_SET_SECONDS = 300.0
STACK_SECONDS = 3600.0
# Resources whose replacement destroys an instance or data for good.
PRECIOUS = {
    "AWS::EC2::Instance",
    "AWS::EC2::NetworkInterface",
    "AWS::FSx::FileSystem",
    "AWS::S3::Bucket",
}
# A stack in one of these states was never complete: it can only be deleted.
NEVER_MADE = {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"}
# What a failed operation has left, for people.
OUTCOMES = {
    "ROLLBACK_COMPLETE": ": nothing of it is left, and the next deploy begins anew",
    "ROLLBACK_FAILED": ": some of its resources are left, and the next deploy deletes them",
    "UPDATE_ROLLBACK_COMPLETE": ": the update was undone, and the cluster is as before",
    "UPDATE_ROLLBACK_FAILED": ": the update could not be undone; `toolkit plan` says what to do",
}
NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A change of one resource, and the properties that cause it."""

    action: Literal["Add", "Modify", "Remove", "Replace"]
    logical_id: str
    resource_type: str
    details: tuple[str, ...] = ()
    may_replace: bool = False  # known only after execution

    def __str__(self) -> str:
        sign = {"Add": "+", "Modify": "~", "Remove": "-", "Replace": "±"}[self.action]
        head = f"{sign} {self.logical_id}  {self.resource_type}"
        head += "  (may be replaced)" if self.may_replace else ""
        return "\n".join([head, *(f"    {line}" for line in self.details)])


@dataclass(frozen=True, slots=True)
class StackPlan:
    """A change set that waits for execution."""

    stack: str
    creates_stack: bool
    changes: tuple[ResourceChange, ...]
    change_set: str = ""  # its id; "" without changes
    before: Mapping[str, Any] = field(default_factory=dict)  # the deployed resources
    note: str = ""  # on the stack's state, for people

    @property
    def destructive_changes(self) -> tuple[ResourceChange, ...]:
        """Return the changes that delete, or may delete, an existing resource."""
        actions = {"Remove", "Replace"}
        return tuple(item for item in self.changes if item.action in actions or item.may_replace)


class StackChanges:
    """Makes and executes plans for one stack. Every call may be repeated."""

    def __init__(
        self,
        clients: Clients,
        stack: str,
        *,
        tags: Mapping[str, str],
        store_template: Callable[[str], str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cloudformation = clients.client("cloudformation")
        self._stack = stack
        self._tags = tags
        self._store_template = store_template
        self._sleep = sleep
        self._clock = clock

    def status(self) -> str:
        """Return the stack's state from CloudFormation; "" without a stack."""
        return stack_status(self._cloudformation, self._stack)

    def plan(self, template: str) -> StackPlan:
        """Make a change set that leads to `template`.

        An unfinished change set of ours is replaced. A stack whose creation failed can
        only be deleted, so that comes first. Raises StackFailed for a stack that waits for
        a person.
        """
        status = self._wait_until_idle()
        if status in NEVER_MADE:
            self._cloudformation.delete_stack(StackName=self._stack)
            status = self._wait_until_idle()
        self._check_state(status)
        creates = status in {"", "REVIEW_IN_PROGRESS", "DELETE_COMPLETE"}
        before = {} if creates else self._deployed_resources()
        name = f"toolkit-{int(time.time())}"
        request: dict[str, Any] = {
            "StackName": self._stack,
            "ChangeSetName": name,
            "ChangeSetType": "CREATE" if creates else "UPDATE",
            "Capabilities": ["CAPABILITY_IAM"],
            "Tags": [{"Key": key, "Value": value} for key, value in self._tags.items()],
        }
        request.update(self._template_argument(template))
        change_set = self._cloudformation.create_change_set(**request)["Id"]
        description = self._wait_for_change_set(change_set)
        if description is None:
            self._cloudformation.delete_change_set(ChangeSetName=change_set)
            return StackPlan(self._stack, creates, (), before=before)
        changes = _resource_changes(description, before, template)
        return StackPlan(self._stack, creates, changes, change_set, before)

    def preview(self, template: str) -> StackPlan:
        """Return the changes that lead to `template`; leave everything as it is.

        CloudFormation compares the templates by a change set, which is deleted again. It
        can't where the stack must be deleted first, or the template be stored: these are
        compared here.
        """
        status = self._wait_until_idle()
        if status in NEVER_MADE:
            note = f"stack {self._stack} is {status}: deploy deletes it first"
            return StackPlan(self._stack, True, _compared({}, template), note=note)
        self._check_state(status)
        if len(template.encode()) > MAX_BODY:
            creates = status in {"", "REVIEW_IN_PROGRESS", "DELETE_COMPLETE"}
            before = {} if creates else self._deployed_resources()
            return StackPlan(self._stack, creates, _compared(before, template), before=before)
        plan = self.plan(template)
        self.discard(plan)
        return plan

    def _check_state(self, status: str) -> None:
        """Raise StackFailed with what to do if no update may begin."""
        name = self._stack
        if status == "DELETE_FAILED":
            raise StackFailed(
                f"stack {name} is DELETE_FAILED: its deletion was begun, and some resources stay\n"
                + failures(self._cloudformation, name, frozenset()),
                next_step="run `toolkit destroy`, then deploy again",
            )
        if status not in {"UPDATE_ROLLBACK_FAILED", "UPDATE_FAILED"}:
            return
        failed_names = failed_resources(self._cloudformation, name)
        command = "continue-update-rollback" if "ROLLBACK" in status else "rollback-stack"
        skip = f" --resources-to-skip {' '.join(failed_names)}" if "ROLLBACK" in status else ""
        raise StackFailed(
            f"stack {name} is {status}: an update failed, and could not be undone\n"
            + failures(self._cloudformation, name, frozenset()),
            next_step=(
                f"mend the cause, then run `aws cloudformation {command} --stack-name {name}`;"
                f" for resources that are gone, add `{skip.strip()}`"
                if skip
                else f"run `aws cloudformation {command} --stack-name {name}`"
            ),
        )

    def discard(self, plan: StackPlan) -> None:
        """Delete a plan, and the empty stack that a first plan leaves."""
        if not plan.change_set:
            return
        self._cloudformation.delete_change_set(ChangeSetName=plan.change_set)
        if plan.creates_stack and self.status() == "REVIEW_IN_PROGRESS":
            self._cloudformation.delete_stack(StackName=self._stack)

    def execute(self, plan: StackPlan, phase: Phase) -> None:
        """Execute the plan and wait.

        Raises StackFailed with the failed resource and the cause.
        """
        if not plan.change_set:
            return
        past_events = self._past_events()
        self._cloudformation.execute_change_set(ChangeSetName=plan.change_set)
        status = wait_for_stack(
            self._cloudformation,
            self._stack,
            phase,
            total=len(plan.changes),
            past_events=past_events,
            sleep=self._sleep,
            clock=self._clock,
        )
        if status not in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
            outcome = OUTCOMES.get(status, "")
            raise StackFailed(
                f"stack {self._stack} is {status}{outcome}\n"
                + failures(self._cloudformation, self._stack, past_events),
                next_step="mend the cause, then run the same command again",
            )

    def _template_argument(self, template: str) -> dict[str, str]:
        if len(template.encode()) <= MAX_BODY or self._store_template is None:
            return {"TemplateBody": template}
        return {"TemplateURL": self._store_template(template)}

    def _deployed_resources(self) -> dict[str, Any]:
        response = self._cloudformation.get_template(
            StackName=self._stack, TemplateStage="Original"
        )
        # Typed as a dict, but a template that was sent as YAML is returned as text.
        body: Any = response["TemplateBody"]
        return resources(body if isinstance(body, str) else json.dumps(body))

    def _wait_until_idle(self) -> str:
        """Wait for the end of another operation; return the state.

        A person or a killed deploy may have begun it.
        """
        deadline = self._clock() + STACK_SECONDS
        while True:
            status = self.status()
            if not status.endswith("IN_PROGRESS") or status == "REVIEW_IN_PROGRESS":
                return status
            if self._clock() > deadline:
                raise StackFailed(f"stack {self._stack} has been {status} for an hour")
            self._sleep(POLL_SECONDS)

    def _wait_for_change_set(self, change_set: str) -> DescribeChangeSetOutputTypeDef | None:
        """Return the finished change set with all its changes.

        None when it would change nothing.
        """
        deadline = self._clock() + CHANGE_SET_SECONDS
        while True:
            description = self._cloudformation.describe_change_set(ChangeSetName=change_set)
            reason = description.get("StatusReason") or ""
            if description["Status"] == "CREATE_COMPLETE":
                break
            if description["Status"] == "FAILED":
                if any(text in reason for text in NO_CHANGES):
                    return None
                raise StackFailed(f"change set of {self._stack} failed: {reason}")
            if self._clock() > deadline:
                raise StackFailed(f"change set of {self._stack} is still {description['Status']}")
            self._sleep(POLL_SECONDS)
        token = description.get("NextToken")
        while token:
            page = self._cloudformation.describe_change_set(
                ChangeSetName=change_set, NextToken=token
            )
            description["Changes"].extend(page["Changes"])
            token = page.get("NextToken")
        return description

    def _past_events(self) -> frozenset[str]:
        return frozenset(event["EventId"] for event in events(self._cloudformation, self._stack))


def resources(template: str) -> dict[str, Any]:
    """Return a template's resources; short forms such as !Ref stay plain values."""
    document = YAML(typ="rt").load(template)
    return dict(document.get("Resources", {})) if hasattr(document, "get") else {}


def _resource_changes(
    description: DescribeChangeSetOutputTypeDef, before: Mapping[str, Any], template: str
) -> tuple[ResourceChange, ...]:
    after = resources(template)
    changes = []
    for item in description["Changes"]:
        change = item.get("ResourceChange", {})
        logical_id, action = change.get("LogicalResourceId", ""), change.get("Action", "Modify")
        details: tuple[str, ...] = ()
        if action == "Modify":
            details = differences(before.get(logical_id, {}), after.get(logical_id, {}))
            if not details and not change.get("Details"):
                continue
        kind, replacement = change.get("ResourceType", ""), change.get("Replacement")
        changes.append(
            ResourceChange(
                action="Replace" if replacement == "True" else _action(action),
                logical_id=logical_id,
                resource_type=kind,
                details=details,
                may_replace=replacement == "Conditional" and kind in PRECIOUS,
            )
        )
    return tuple(changes)


def _compared(before: Mapping[str, Any], template: str) -> tuple[ResourceChange, ...]:
    """Return the changes between two templates, without CloudFormation's own judgement."""
    after = resources(template)
    changes = []
    for logical_id in dict.fromkeys((*after, *before)):
        kind = str(after.get(logical_id, before.get(logical_id, {})).get("Type", ""))
        details = differences(before.get(logical_id, {}), after.get(logical_id, {}))
        if logical_id not in before:
            changes.append(ResourceChange("Add", logical_id, kind))
        elif logical_id not in after:
            changes.append(ResourceChange("Remove", logical_id, kind))
        elif details:
            changes.append(
                ResourceChange("Modify", logical_id, kind, details, may_replace=kind in PRECIOUS)
            )
    return tuple(changes)


def _action(action: str) -> Literal["Add", "Modify", "Remove"]:
    if action in {"Add", "Import"}:
        return "Add"
    return "Remove" if action == "Remove" else "Modify"


def stack_status(cloudformation: Any, stack: str) -> str:
    """Return the stack's state; "" when there is none."""
    try:
        stacks = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if error_code(error) == "ValidationError" and "does not exist" in str(error):
            return ""
        raise
    return str(stacks[0]["StackStatus"]) if stacks else ""


def events(cloudformation: Any, stack: str) -> list[dict[str, Any]]:
    """Return the stack's events, oldest first."""
    try:
        pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
        return [event for page in pages for event in page["StackEvents"]][::-1]
    except ClientError as error:
        if error_code(error) == "ValidationError":
            return []
        raise


def failures(cloudformation: Any, stack: str, past_events: frozenset[str]) -> str:
    """Return the failed resources in order; the first line is the cause."""
    return "\n".join(
        f"  {event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
        for event in events(cloudformation, stack)
        if event["EventId"] not in past_events
        and event.get("ResourceStatus", "").endswith("FAILED")
    )


def failed_resources(cloudformation: Any, stack: str) -> tuple[str, ...]:
    """Return the resources whose last event is a failure."""
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
    deadline = clock() + STACK_SECONDS
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
        if clock() > deadline:
            raise StackFailed(f"stack {stack} is still {status} after an hour")
        sleep(POLL_SECONDS)
