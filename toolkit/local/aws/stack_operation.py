"""Making, changing, rolling back and deleting a stack, one resource after the other.

Runs in a thread of its own. The states and their order are CloudFormation's:
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolkit.local.aws.aws_errors import code_of
from toolkit.local.aws.stack_resources import StackFailed, StackResources
from toolkit.local.aws.stack_template import fixed_addresses, order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.stack_replacement import ResourceChange

log = logging.getLogger(__name__)
_CLEANUP_ATTEMPTS = 3
_NEW_RESOURCE = (
    "Requested update requires the creation of a new physical resource; hence creating one."
)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A resource that an update has put out of use, and that the cleanup deletes."""

    name: str
    resource: Any
    body: Mapping[str, Any]


@dataclass(slots=True)
class Rollback:
    """The steps of an update that must be undone, and what to delete afterwards."""

    new_resources: Mapping[str, Any]
    steps: list[tuple[ResourceChange, Any]] = field(default_factory=list)  # and the old resource
    leftovers: list[Leftover] = field(default_factory=list)


class StackOperation:
    """An operation on one stack."""

    def __init__(
        self, tables: Tables, stack: Any, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Work on moto's stack with moto's resource map."""
        self._tables = tables
        self._stack = stack
        self._resources = StackResources(tables, stack, sleep)

    def create(self) -> None:
        """Make every resource; when one fails, delete the others and say ROLLBACK_COMPLETE."""
        names = order(self._stack.template_dict)
        try:
            self._want_addresses(names)
            for name in names:
                self._create(name)
        except Exception as error:  # noqa: BLE001 - any failure fails the operation
            self._set_status("ROLLBACK_IN_PROGRESS", _message(error))
            try:
                self._delete_all(reversed(names))
            except StackFailed as rollback_error:
                self._set_status("ROLLBACK_FAILED", str(rollback_error))
                return
            self._set_status("ROLLBACK_COMPLETE")
            return
        finally:
            self._tables.wanted_addresses.clear()
        self._set_status("CREATE_COMPLETE")

    def update(
        self,
        old_resources: Mapping[str, Any],
        changes: Sequence[ResourceChange],
        restore: Callable[[], None],
    ) -> None:
        """Make and change resources, then delete the old ones.

        A failure brings the old resources back; `restore` puts the old template in force.
        """
        rollback = Rollback(self._stack.template_dict["Resources"])
        try:
            self._want_addresses(item.name for item in changes if item.action != "Remove")
            for change in changes:
                if change.action != "Remove":
                    self._apply(change, rollback)
        except Exception as error:  # noqa: BLE001 - any failure fails the operation
            self._set_status("UPDATE_ROLLBACK_IN_PROGRESS", _message(error))
            with self._tables.lock:
                restore()
            self._stack.rollback = rollback
            self._roll_back(rollback, ())
            return
        finally:
            self._tables.wanted_addresses.clear()
        replaced = [
            Leftover(change.name, resource, old_resources[change.name])
            for change, resource in reversed(rollback.steps)
            if change.replaces
        ]
        removed = [
            Leftover(item.name, self._resources.take(item.name), old_resources[item.name])
            for item in changes
            if item.action == "Remove"
        ]
        self._set_status("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        positions = {name: at for at, name in enumerate(order({"Resources": old_resources}))}
        self._clean_up(
            sorted([*replaced, *removed], key=lambda item: positions[item.name], reverse=True)
        )
        self._set_status("UPDATE_COMPLETE")

    def continue_rollback(self, skipped_names: Collection[str]) -> None:
        """Undo what a failed rollback left, except the resources to skip."""
        self._roll_back(self._stack.rollback, skipped_names)

    def delete(self) -> bool:
        """Delete every resource, the last made first; returns whether all are gone."""
        template = self._stack.template_dict
        try:
            self._delete_all(reversed(order(template)) if template else ())
        except StackFailed as error:
            self._set_status("DELETE_FAILED", str(error))
            return False
        self._set_status("DELETE_COMPLETE")
        return True

    def _want_addresses(self, names: Iterable[str]) -> None:
        bodies = [self._resources.body(name) for name in names]
        self._tables.wanted_addresses.update(fixed_addresses(bodies))

    def _create(self, name: str) -> None:
        kind = str(self._resources.body(name)["Type"])
        self._resources.event(name, kind, "CREATE_IN_PROGRESS")
        try:
            made = self._resources.create(name)
        except Exception as error:
            log.warning("stack %s: %s %s: %s", self._stack.name, kind, name, error)
            self._resources.event(name, kind, "CREATE_FAILED", _message(error))
            message = f"The following resource(s) failed to create: [{name}]. "
            raise StackFailed(message) from error
        if made:
            self._resources.event(name, kind, "CREATE_COMPLETE")

    def _apply(self, change: ResourceChange, rollback: Rollback) -> None:
        """Make one change; the old resource of a replacement exists on."""
        if change.action == "Add":
            rollback.steps.append((change, None))
            self._create(change.name)
            return
        reason = _NEW_RESOURCE if change.replaces else None
        self._resources.event(change.name, change.kind, "UPDATE_IN_PROGRESS", reason)
        old_resource = self._resources.take(change.name) if change.replaces else None
        rollback.steps.append((change, old_resource))
        try:
            if change.replaces:
                self._resources.create(change.name)
            else:
                self._resources.change(change)
        except Exception as error:
            self._resources.event(change.name, change.kind, "UPDATE_FAILED", _message(error))
            message = f"The following resource(s) failed to update: [{change.name}]. "
            raise StackFailed(message) from error
        self._resources.event(change.name, change.kind, "UPDATE_COMPLETE")

    def _roll_back(self, rollback: Rollback, skipped_names: Collection[str]) -> None:
        """Undo the steps, the last first; stop at a failure."""
        while rollback.steps:
            change, old_resource = rollback.steps[-1]
            try:
                if change.name not in skipped_names:
                    self._undo(change, old_resource, rollback)
            except Exception as error:  # noqa: BLE001 - any failure fails the rollback
                self._resources.event(change.name, change.kind, "UPDATE_FAILED", _message(error))
                message = f"The following resource(s) failed to update: [{change.name}]. "
                self._set_status("UPDATE_ROLLBACK_FAILED", message)
                return
            rollback.steps.pop()
        self._set_status("UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS")
        self._clean_up(rollback.leftovers)
        self._set_status("UPDATE_ROLLBACK_COMPLETE")

    def _undo(self, change: ResourceChange, old_resource: Any, rollback: Rollback) -> None:
        if change.action == "Add" or change.replaces:
            new_resource = self._resources.take(change.name)
            if new_resource is not None:
                body = rollback.new_resources[change.name]
                rollback.leftovers.append(Leftover(change.name, new_resource, body))
        if change.action == "Add":
            return
        self._resources.event(change.name, change.kind, "UPDATE_IN_PROGRESS")
        if change.replaces:
            self._resources.put_back(change.name, old_resource)
        else:
            self._resources.change(change)
        self._resources.event(change.name, change.kind, "UPDATE_COMPLETE")

    def _clean_up(self, leftovers: Sequence[Leftover]) -> None:
        """Delete unused resources; give each up after three attempts.

        https://repost.aws/knowledge-center/cloudformation-stack-cleanup-stuck
        """
        for item in leftovers:
            for _ in range(_CLEANUP_ATTEMPTS):
                try:
                    self._delete(item, old=True)
                except StackFailed:
                    continue
                break

    def _delete_all(self, names: Iterable[str]) -> None:
        for name in names:
            resource = self._resources.find(name)
            if resource is not None:
                self._delete(Leftover(name, resource, self._resources.body(name)), old=False)
                self._resources.take(name)

    def _delete(self, item: Leftover, *, old: bool) -> None:
        kind = str(item.body["Type"])
        subject = item.resource if old else None
        if item.resource is None:
            return
        policy = "UpdateReplacePolicy" if old else "DeletionPolicy"
        if item.body.get(policy) == "Retain":
            self._resources.event(item.name, kind, "DELETE_SKIPPED", old=subject)
            return
        self._resources.event(item.name, kind, "DELETE_IN_PROGRESS", old=subject)
        try:
            if item.body.get(policy) == "Snapshot":
                self._resources.snapshot(item.resource)
            self._resources.delete(item.resource, item.body)
        except Exception as error:
            log.warning("stack %s: delete %s: %s", self._stack.name, item.name, error)
            self._resources.event(item.name, kind, "DELETE_FAILED", _message(error), old=subject)
            message = f"The following resource(s) failed to delete: [{item.name}]. "
            raise StackFailed(message) from error
        self._resources.event(item.name, kind, "DELETE_COMPLETE", old=item.resource)

    def _set_status(self, status: str, reason: str | None = None) -> None:
        with self._tables.lock:
            self._stack.status = status
            self._stack.stack_status_reason = reason
            self._stack._add_stack_event(status, reason)


def _message(error: BaseException) -> str:
    if isinstance(error, StackFailed):
        return str(error)
    code, message = code_of(error) if isinstance(error, Exception) else ("", str(error))
    return f"{message} (Error Code: {code})"
