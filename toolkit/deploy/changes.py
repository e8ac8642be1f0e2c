"""Change sets of one stack: made, shown, then executed or discarded."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from toolkit.deploy.stack_events import (
    STACK_SECONDS,
    events,
    failed_resources,
    failures,
    stack_status,
    wait_for_stack,
)
from toolkit.deploy.stack_plan import (
    StackPlan,
    compared_templates,
    resource_changes,
    resources,
)
from toolkit.errors import StackFailed
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_cloudformation.type_defs import DescribeChangeSetOutputTypeDef

    from toolkit.deploy.session import Clients
    from toolkit.output import Phase

# CloudFormation's limit for a template in a request; a larger one must be in a bucket.
MAX_BODY = 51_200
CHANGE_SET_SECONDS = 300.0
# A stack in one of these states was never complete: it can only be deleted.
NEVER_MADE = {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"}
# A stack in one of these states has no resource yet, or none any more.
NOT_MADE = {"", "REVIEW_IN_PROGRESS", "DELETE_COMPLETE"}
# What a failed operation has left, for people.
OUTCOMES = {
    "ROLLBACK_COMPLETE": ": nothing of it is left, and the next deploy begins anew",
    "ROLLBACK_FAILED": ": some of its resources are left, and the next deploy deletes them",
    "UPDATE_ROLLBACK_COMPLETE": ": the update was undone, and the cluster is as before",
    "UPDATE_ROLLBACK_FAILED": ": the update could not be undone; `toolkit plan` says what to do",
}
NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


class StackChanges:
    """Makes and executes plans for one stack. Every call may be repeated."""

    def __init__(
        self,
        clients: Clients,
        stack: str,
        *,
        tags: Mapping[str, str],
        store_template: Callable[[str], str] | None = None,
        named_roles: bool = False,
        protects: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Protect the stack from deletion by hand if `protects` is set."""
        self._cloudformation = clients.client("cloudformation")
        self._stack = stack
        self._tags = tags
        self._store_template = store_template
        # CloudFormation wants to be told that a template names its roles itself.
        self._capability = "CAPABILITY_NAMED_IAM" if named_roles else "CAPABILITY_IAM"
        self._protects = protects
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
        creates = status in NOT_MADE
        before = {} if creates else self._deployed_resources()
        name = f"toolkit-{int(time.time())}"
        request: dict[str, Any] = {
            "StackName": self._stack,
            "ChangeSetName": name,
            "ChangeSetType": "CREATE" if creates else "UPDATE",
            "Capabilities": [self._capability],
            "Tags": [{"Key": key, "Value": value} for key, value in self._tags.items()],
        }
        request.update(self._template_argument(template))
        change_set = self._cloudformation.create_change_set(**request)["Id"]
        description = self._wait_for_change_set(change_set)
        if description is None:
            self._cloudformation.delete_change_set(ChangeSetName=change_set)
            return StackPlan(self._stack, creates, (), before=before)
        changes = resource_changes(description, before, template)
        return StackPlan(self._stack, creates, changes, change_set, before)

    def preview(self, template: str) -> StackPlan:
        """Return the changes that lead to `template`; leave everything as it is.

        CloudFormation compares the templates by a change set, which is deleted again. It
        can't where the stack must be deleted first, or the template be stored: these are
        compared here. So is a stack that does not exist, which a change set would make.
        """
        status = self._wait_until_idle()
        if status in NEVER_MADE:
            note = f"stack {self._stack} is {status}: deploy deletes it first"
            return StackPlan(self._stack, True, compared_templates({}, template), note=note)
        self._check_state(status)
        creates = status in NOT_MADE
        if creates or len(template.encode()) > MAX_BODY:
            before = {} if creates else self._deployed_resources()
            return StackPlan(
                self._stack, creates, compared_templates(before, template), before=before
            )
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
        if status == "UPDATE_FAILED":
            next_step = f"run `aws cloudformation rollback-stack --stack-name {name}`"
        else:
            gone = " ".join(failed_resources(self._cloudformation, name))
            next_step = (
                "mend the cause, then run `aws cloudformation continue-update-rollback"
                f" --stack-name {name}`; for resources that are gone, add"
                f" `--resources-to-skip {gone}`"
            )
        raise StackFailed(
            f"stack {name} is {status}: an update failed, and could not be undone\n"
            + failures(self._cloudformation, name, frozenset()),
            next_step=next_step,
        )

    def discard(self, plan: StackPlan) -> None:
        """Delete the change set of a plan for a stack that exists."""
        if plan.change_set:
            self._cloudformation.delete_change_set(ChangeSetName=plan.change_set)

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
        if self._protects:
            self._cloudformation.update_termination_protection(
                StackName=self._stack, EnableTerminationProtection=True
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
        wait = Wait(STACK_SECONDS, self._sleep, self._clock)
        while True:
            status = self.status()
            if not status.endswith("IN_PROGRESS") or status == "REVIEW_IN_PROGRESS":
                return status
            if wait.is_over:
                raise StackFailed(f"stack {self._stack} has been {status} for an hour")
            wait.pause()

    def _wait_for_change_set(self, change_set: str) -> DescribeChangeSetOutputTypeDef | None:
        """Return the finished change set with all its changes.

        None when it would change nothing.
        """
        wait = Wait(CHANGE_SET_SECONDS, self._sleep, self._clock)
        while True:
            description = self._cloudformation.describe_change_set(ChangeSetName=change_set)
            reason = description.get("StatusReason") or ""
            if description["Status"] == "CREATE_COMPLETE":
                break
            if description["Status"] == "FAILED":
                if any(text in reason for text in NO_CHANGES):
                    return None
                raise StackFailed(f"change set of {self._stack} failed: {reason}")
            if wait.is_over:
                raise StackFailed(f"change set of {self._stack} is still {description['Status']}")
            wait.pause()
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
