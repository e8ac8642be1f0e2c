"""Making, changing and deleting the resources of one stack, one after the other.

Runs in a thread of its own; takes the lock for one resource at a time, and not
while it waits for an instance.
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from moto.cloudformation.models import Event
from moto.cloudformation.parsing import (
    NULL_MODELS,
    clean_json,
    parse_and_update_resource,
    resource_class_from_type,
)
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import Instance
from moto.s3.models import FakeBucket, s3_backends

from toolkit.local.aws.aws_errors import code_of
from toolkit.local.aws.stack_template import order
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from toolkit.local.aws.instance_tables import Tables

log = logging.getLogger(__name__)
_PATIENCE = 300.0  # seconds an instance may take to start or to end
_POLL = 0.05
# Changes of an instance that EC2 makes in place (after a stop); all others replace it.
_IN_PLACE = frozenset({"UserData", "InstanceType", "Tags"})


class StackFailed(Exception):  # noqa: N818 - what happened, as CloudFormation calls it
    """A resource could not be made, changed or deleted."""


class StackOperation:
    """An operation on one stack."""

    def __init__(
        self, tables: Tables, stack: Any, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Work on moto's stack with moto's resource map."""
        self._tables = tables
        self._stack = stack
        self._map = stack.resource_map
        self._sleep = sleep
        if not hasattr(stack, "resource_states"):
            stack.resource_states = {}

    def create(self) -> None:
        """Make every resource; when one fails, delete the others and say ROLLBACK_COMPLETE."""
        try:
            self._create_resources(order(self._stack.template_dict))
        except Exception as error:  # noqa: BLE001 - any failure fails the operation
            self._set_status("ROLLBACK_IN_PROGRESS", _message(error))
            try:
                self._delete_resources(reversed(order(self._stack.template_dict)))
            except StackFailed as rollback_error:
                self._set_status("ROLLBACK_FAILED", str(rollback_error))
                return
            self._set_status("ROLLBACK_COMPLETE")
            return
        self._set_status("CREATE_COMPLETE")

    def update(self, old_resources: Mapping[str, Any], diff: Mapping[str, list[str]]) -> None:
        """Add and change resources, then remove the old ones.

        A failure leaves the stack UPDATE_FAILED.
        """
        names = order(self._stack.template_dict)
        try:
            for name in names:
                if name in diff["Add"]:
                    self._create_resources([name])
                elif name in diff["Modify"]:
                    self._update_resource(name, old_resources[name])
            removed_names = [
                name
                for name in reversed(order({"Resources": old_resources}))
                if name in diff["Remove"]
            ]
            self._delete_resources(removed_names, old_resources)
        except Exception as error:  # noqa: BLE001 - any failure fails the operation
            self._set_status("UPDATE_FAILED", _message(error))
            return
        self._set_status("UPDATE_COMPLETE")

    def delete(self) -> bool:
        """Delete every resource, the last made first; returns whether all are gone."""
        template = self._stack.template_dict
        try:
            self._delete_resources(reversed(order(template)) if template else ())
        except StackFailed as error:
            self._set_status("DELETE_FAILED", str(error))
            return False
        self._set_status("DELETE_COMPLETE")
        return True

    def _create_resources(self, names: Iterable[str]) -> None:
        for name in names:
            kind = self._map._resource_json_map[name]["Type"]
            self._event(name, kind, "CREATE_IN_PROGRESS")
            try:
                resource = self._create_resource(name, kind)
            except Exception as error:
                log.warning("stack %s: %s %s: %s", self._stack.name, kind, name, error)
                self._event(name, kind, "CREATE_FAILED", _message(error))
                message = f"The following resource(s) failed to create: [{name}]. "
                raise StackFailed(message) from error
            if resource is not None or kind in NULL_MODELS:
                self._event(name, kind, "CREATE_COMPLETE")

    def _create_resource(self, name: str, kind: str) -> Any:
        if kind not in NULL_MODELS and resource_class_from_type(kind) is None:
            raise StackFailed(f"The local cloud has no resource type {kind}")
        with self._tables.lock:
            resource = self._map[name]
            if isinstance(resource, TaggedEC2Resource):
                tags = {
                    **self._stack.tags,
                    "aws:cloudformation:stack-name": self._stack.name,
                    "aws:cloudformation:stack-id": self._stack.stack_id,
                    "aws:cloudformation:logical-id": name,
                }
                resource.ec2_backend.create_tags([resource.physical_resource_id], tags)
        if isinstance(resource, Instance):
            self._wait_for_state(resource, "running", failures=("terminated", "shutting-down"))
        return resource

    def _update_resource(self, name: str, old_body: Mapping[str, Any]) -> None:
        body = self._map._resource_json_map[name]
        kind = body["Type"]
        self._event(name, kind, "UPDATE_IN_PROGRESS")
        try:
            if kind == "AWS::EC2::Instance":
                self._update_instance(name, old_body, body)
            else:
                self._update_in_place(name, old_body)
        except Exception as error:
            self._event(name, kind, "UPDATE_FAILED", _message(error))
            message = f"The following resource(s) failed to update: [{name}]. "
            raise StackFailed(message) from error
        self._event(name, kind, "UPDATE_COMPLETE")

    def _update_in_place(self, name: str, old_body: Mapping[str, Any]) -> None:
        body = self._map._resource_json_map[name]
        with self._tables.lock:
            resource = self._map._parsed_resources.get(name)
            if isinstance(resource, TaggedEC2Resource) and _changed_properties(old_body, body) <= {
                "Tags"
            }:
                self._retag(resource, body)
                return
            updated_resource = parse_and_update_resource(
                name, body, self._map, account_id=ACCOUNT, region_name=self._stack.region_name
            )
            if updated_resource is not None:
                self._map._parsed_resources[name] = updated_resource
                return
        self._replace(name, old_body)

    def _replace(self, name: str, old_body: Mapping[str, Any]) -> None:
        """Delete a resource and make it again.

        The template may give a name that can exist only once.
        """
        self._delete_resource(name, old_body)
        self._create_resource(name, str(old_body["Type"]))

    def _update_instance(
        self, name: str, old_body: Mapping[str, Any], new_body: Mapping[str, Any]
    ) -> None:
        changed_names = _changed_properties(old_body, new_body)
        if changed_names - _IN_PLACE:
            self._replace(name, old_body)
            return
        with self._tables.lock:
            instance = self._map[name]
            properties = clean_json(dict(new_body.get("Properties", {})), self._map)
            self._retag(instance, new_body)
        if changed_names <= {"Tags"}:
            return
        with self._tables.lock:
            instance.stop()
        self._wait_for_state(instance, "stopped", failures=("terminated",))
        with self._tables.lock:
            instance.instance_type = properties.get("InstanceType", instance.instance_type)
            if "UserData" in properties:
                instance.user_data = Base64EncodedString(properties["UserData"])
                self._tables.instances[instance.id].user_data = properties["UserData"]
            instance.start()
        self._wait_for_state(instance, "running", failures=("terminated", "shutting-down"))

    def _retag(self, resource: Any, body: Mapping[str, Any]) -> None:
        """Write the template's tags; those it no longer has go."""
        tag_list = clean_json(body.get("Properties", {}).get("Tags", []), self._map)
        new_tags = {str(tag["Key"]): str(tag["Value"]) for tag in tag_list}
        tags = resource.ec2_backend.tags.setdefault(resource.physical_resource_id, {})
        for key in [key for key in tags if not key.startswith("aws:") and key not in new_tags]:
            if key not in self._stack.tags:
                del tags[key]
        tags.update(new_tags)

    def _delete_resources(
        self, names: Iterable[str], bodies: Mapping[str, Any] | None = None
    ) -> None:
        for name in names:
            bodies = self._map._resource_json_map if bodies is None else bodies
            body = bodies[name]
            if self._map._parsed_resources.get(name) is None:
                continue
            if body.get("DeletionPolicy") == "Retain":
                self._event(name, body["Type"], "DELETE_SKIPPED")
                continue
            self._event(name, body["Type"], "DELETE_IN_PROGRESS")
            try:
                self._delete_resource(name, body)
            except Exception as error:
                log.warning("stack %s: delete %s: %s", self._stack.name, name, error)
                self._event(name, body["Type"], "DELETE_FAILED", _message(error))
                message = f"The following resource(s) failed to delete: [{name}]. "
                raise StackFailed(message) from error
            self._event(name, body["Type"], "DELETE_COMPLETE")

    def _delete_resource(self, name: str, body: Mapping[str, Any]) -> None:
        resources = self._map._parsed_resources
        resource = resources[name]
        with self._tables.lock:
            self._map._delete_resource(resource, body)
            buckets = s3_backends[ACCOUNT]["aws"].buckets
            if isinstance(resource, FakeBucket) and resource.name in buckets:
                raise StackFailed("The bucket you tried to delete is not empty")
        if isinstance(resource, Instance):
            self._wait_for_state(resource, "terminated", failures=())
        resources.pop(name)

    def _wait_for_state(self, instance: Any, state: str, *, failures: tuple[str, ...]) -> None:
        deadline = self._tables.clock() + _PATIENCE
        while instance.state != state:
            if instance.state in failures:
                reason = self._tables.instances[instance.id].reason_text
                raise StackFailed(f"Instance {instance.id} is {instance.state}: {reason}")
            if self._tables.clock() > deadline:
                raise StackFailed(f"Instance {instance.id} did not become {state} in time")
            self._sleep(_POLL)

    def _set_status(self, status: str, reason: str | None = None) -> None:
        with self._tables.lock:
            self._stack.status = status
            self._stack.stack_status_reason = reason
            self._stack._add_stack_event(status, reason)

    def _event(self, name: str, kind: str, status: str, reason: str | None = None) -> None:
        resource = self._map._parsed_resources.get(name)
        physical = getattr(resource, "physical_resource_id", None) or ""
        with self._tables.lock:
            self._stack.resource_states[name] = (status, reason, utcnow())
            self._stack.events.append(
                Event(
                    stack_id=self._stack.stack_id,
                    stack_name=self._stack.name,
                    logical_resource_id=name,
                    physical_resource_id=str(physical),
                    resource_type=kind,
                    resource_status=status,
                    resource_status_reason=reason,
                    resource_properties="{}",
                )
            )


def _changed_properties(old_body: Mapping[str, Any], new_body: Mapping[str, Any]) -> set[str]:
    """Return the properties in which two versions of a resource differ."""
    old_properties, new_properties = (
        old_body.get("Properties") or {},
        new_body.get("Properties") or {},
    )
    return {
        key
        for key in {*old_properties, *new_properties}
        if old_properties.get(key) != new_properties.get(key)
    }


def _message(error: BaseException) -> str:
    if isinstance(error, StackFailed):
        return str(error)
    code, message = code_of(error) if isinstance(error, Exception) else ("", str(error))
    return f"{message} (Error Code: {code})"
