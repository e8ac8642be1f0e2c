"""Makes, changes and deletes one resource of a stack, and writes its events.

Takes the lock for one call at a time, and not while it waits for an instance.
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

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
from moto.ec2.models.elastic_block_store import Volume, VolumeAttachment
from moto.ec2.models.elastic_network_interfaces import NetworkInterface
from moto.ec2.models.instances import Instance
from moto.s3.models import FakeBucket, s3_backends

from toolkit.local.aws import stack_volumes
from toolkit.local.options import ACCOUNT
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.stack_replacement import ResourceChange

_PATIENCE = 300.0  # seconds an instance may take to start or to end
_DETACH_PATIENCE = 60.0  # seconds an instance may keep a volume that it has mounted
_POLL = 0.05
_ENDED = ("terminated", "shutting-down")
# Changes of an instance that the local cloud makes in place, all but tags after a stop.
_IN_PLACE = frozenset({"UserData", "InstanceType", "Tags"})


class StackFailed(Exception):  # noqa: N818 - what happened, as CloudFormation calls it
    """A resource could not be made, changed or deleted."""


class StackResources:
    """The resources of one stack."""

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

    def find(self, name: str) -> Any:
        """Return the resource of a logical id, None if there is none."""
        return self._map._parsed_resources.get(name)

    def take(self, name: str) -> Any:
        """Forget a resource and return it; it exists on."""
        return self._map._parsed_resources.pop(name, None)

    def put_back(self, name: str, resource: Any) -> None:
        """Bring a taken resource back; raise if it has ended."""
        if isinstance(resource, Instance) and resource.state in _ENDED:
            raise StackFailed(f"Instance {resource.id} is {resource.state}")
        self._map._parsed_resources[name] = resource

    def body(self, name: str) -> Mapping[str, Any]:
        """Return a resource as the template in force describes it."""
        body: Mapping[str, Any] = self._map._resource_json_map[name]
        return body

    def create(self, name: str) -> bool:
        """Make a resource; return whether it was, as its condition says."""
        kind = str(self.body(name)["Type"])
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
                resource.tags_of_template = frozenset(self._template_tags(self.body(name)))
        if isinstance(resource, Instance):
            self._wait_for_state(resource, "running", failures=_ENDED)
        return resource is not None or kind in NULL_MODELS

    def change(self, change: ResourceChange) -> None:
        """Change a resource in place to what the template in force says."""
        body = self.body(change.name)
        resource = self.find(change.name)
        if isinstance(resource, Instance):
            self._change_instance(resource, body, change.properties)
            return
        with self._tables.lock:
            if isinstance(resource, NetworkInterface):
                self._change_interface(resource, body)
                return
            if isinstance(resource, TaggedEC2Resource) and change.properties <= {"Tags"}:
                self._retag(resource, body)
                return
            updated_resource = parse_and_update_resource(
                change.name,
                body,
                self._map,
                account_id=ACCOUNT,
                region_name=self._stack.region_name,
            )
            if updated_resource is not None:
                self._map._parsed_resources[change.name] = updated_resource
                return
        # moto can't change this type: the same resource is made again in its own place.
        self.delete(self.take(change.name), body)
        self.create(change.name)

    def _change_interface(self, interface: Any, body: Mapping[str, Any]) -> None:
        properties = clean_json(dict(body.get("Properties", {})), self._map)
        interface.ec2_backend.modify_network_interface_attribute(
            interface.id, properties.get("GroupSet") or [], None, properties.get("Description")
        )
        self._retag(interface, body)

    def _change_instance(
        self, instance: Any, body: Mapping[str, Any], names: frozenset[str]
    ) -> None:
        if names - _IN_PLACE:
            raise StackFailed(
                f"The local cloud can't change {', '.join(sorted(names - _IN_PLACE))}"
                " of an instance in place"
            )
        with self._tables.lock:
            properties = clean_json(dict(body.get("Properties", {})), self._map)
            self._retag(instance, body)
        if names <= {"Tags"}:
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
        self._wait_for_state(instance, "running", failures=_ENDED)

    def _retag(self, resource: Any, body: Mapping[str, Any]) -> None:
        """Write the template's tags, and delete those it no longer has."""
        new_tags = self._template_tags(body)
        tags = resource.ec2_backend.tags.setdefault(resource.physical_resource_id, {})
        for key in resource.tags_of_template - set(new_tags) - set(self._stack.tags):
            tags.pop(key, None)
        tags.update(new_tags)
        resource.tags_of_template = frozenset(new_tags)

    def _template_tags(self, body: Mapping[str, Any]) -> dict[str, str]:
        tag_list = clean_json(body.get("Properties", {}).get("Tags", []), self._map)
        return {str(tag["Key"]): str(tag["Value"]) for tag in tag_list}

    def delete(self, resource: Any, body: Mapping[str, Any]) -> None:
        """Delete a resource; one that is absent is deleted."""
        if isinstance(resource, Instance) and resource.id not in self._tables.instances:
            return
        with self._tables.lock:
            self._map._delete_resource(resource, body)
            buckets = s3_backends[ACCOUNT]["aws"].buckets
            if isinstance(resource, FakeBucket) and resource.name in buckets:
                raise StackFailed("The bucket you tried to delete is not empty")
        if isinstance(resource, Instance):
            self._wait_for_state(resource, "terminated", failures=())
        if isinstance(resource, VolumeAttachment):
            self._wait_for_detachment(resource)

    def snapshot(self, resource: Any) -> None:
        """Keep a snapshot of a volume, as its deletion policy says."""
        if isinstance(resource, Volume):
            with self._tables.lock:
                stack_volumes.snapshot(resource)

    def _wait_for_detachment(self, attachment: Any) -> None:
        wait = Wait(_DETACH_PATIENCE, self._sleep, self._tables.clock, pause=_POLL)
        while stack_volumes.is_attached(attachment):
            if wait.is_over:
                raise StackFailed(f"Volume {attachment.volume.id} is busy: it is mounted")
            wait.pause()

    def _wait_for_state(self, instance: Any, state: str, *, failures: tuple[str, ...]) -> None:
        wait = Wait(_PATIENCE, self._sleep, self._tables.clock, pause=_POLL)
        while instance.state != state:
            if instance.state in failures:
                reason = self._tables.instances[instance.id].reason_text
                raise StackFailed(f"Instance {instance.id} is {instance.state}: {reason}")
            if wait.is_over:
                raise StackFailed(f"Instance {instance.id} did not become {state} in time")
            wait.pause()

    def event(
        self, name: str, kind: str, status: str, reason: str | None = None, *, old: Any = None
    ) -> None:
        """Write an event, and the state unless it concerns an `old` resource."""
        resource = self.find(name) if old is None else old
        physical = getattr(resource, "physical_resource_id", None) or ""
        with self._tables.lock:
            if old is None:
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
