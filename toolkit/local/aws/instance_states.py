"""The states of instances: asked for by the API, reached when the machine has followed.

The API's calls only move an instance to pending, stopping or shutting-down. The
machine controller moves it on to running, stopped or terminated once its machine is there.
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.models import EC2Backend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import Instance
from moto.ec2.responses import EC2Response
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix

from toolkit.local.aws import network_interfaces, volumes
from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.instance_tables import (
    LIVE_STATES,
    USER_SHUTDOWN,
    LocalInstance,
    Reason,
    Tables,
)
from toolkit.local.aws.launch_request import parse_bool

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.local.aws.moto_patches import Patches


class States:
    """Moves instances through their states."""

    def __init__(self, tables: Tables, on_terminated: Callable[[LocalInstance], None]) -> None:
        """`on_terminated` is called once for each terminated instance."""
        self._tables = tables
        self._on_terminated = on_terminated
        self._moto_terminate: Any = None
        self._moto_exist: Any = None

    def install(self, patches: Patches) -> None:
        """Put this in place of moto's immediate state changes."""
        states = self

        def terminate(instance: Any) -> Any:
            return states.request_state(instance.id, "shutting-down", LIVE_STATES, USER_SHUTDOWN)

        def stop(instance: Any) -> Any:
            return states.request_state(
                instance.id, "stopping", ("running", "pending"), USER_SHUTDOWN
            )

        def start(instance: Any) -> Any:
            # EC2's LaunchTime is that of the latest start.
            if states.get(instance.id).state == "stopped":
                instance.launch_time = states._tables.utc_now()
            return states.request_state(instance.id, "pending", ("stopped",), None)

        def reboot(instance: Any) -> None:
            states.get(instance.id).reboot_requested = True

        def get_instance(_backend: Any, instance_id: str) -> Any:
            return states.get(instance_id).row

        def get_instance_by_id(_backend: Any, instance_id: str) -> Any:
            instance = states._tables.instances.get(instance_id)
            return instance.row if instance else None

        self._moto_exist = patches.replace(EC2Backend, "do_resources_exist", self._exist())
        self._moto_terminate = patches.replace(Instance, "terminate", terminate)
        patches.replace(Instance, "stop", stop)
        patches.replace(Instance, "start", start)
        patches.replace(Instance, "reboot", reboot)
        patches.replace(EC2Backend, "get_instance", get_instance)
        patches.replace(EC2Backend, "get_instance_by_id", get_instance_by_id)
        patches.replace(EC2Response, "terminate_instances", _terminate_instances)
        patches.replace(TaggedEC2Resource, "get_tags", _get_tags)
        for name in _ADDRESSES:
            patches.replace(Instance, name, property(_address(name, getattr(Instance, name).fget)))

    def _exist(self) -> Callable[[Any, list[str]], bool]:
        """Return moto's check before it tags, with a stricter look at instances.

        moto's own takes any instance's id for an instance.
        """

        def do_resources_exist(backend: Any, ids: list[str]) -> bool:
            for instance_id in ids:
                if instance_id.startswith("i-"):
                    self.get(instance_id)
            exist: bool = self._moto_exist(backend, ids)
            return exist

        return do_resources_exist

    def get(self, instance_id: str) -> LocalInstance:
        """Return the instance's row, or refuse as EC2 does."""
        return self._tables.instance(instance_id)

    def request_state(
        self, instance_id: str, new_state: str, allowed: tuple[str, ...], reason: Reason | None
    ) -> Any:
        """Move an instance towards a state; return the state before.

        Refuses a change that EC2 does not allow.
        """
        instance = self.get(instance_id)
        previous_state = copy.copy(instance.row.instance_state)
        if instance.state in allowed:
            instance.reason = reason
            self._tables.set_state(instance, new_state, reason)
        elif new_state != "shutting-down" and instance.state in ("shutting-down", "terminated"):
            message = (
                f"The instance '{instance_id}' is not in a state from which it can be {new_state}."
            )
            raise ec2_error("IncorrectInstanceState", message)
        return previous_state

    def record_terminated(self, instance: LocalInstance) -> None:
        """Record a machine's end: the instance is terminated, its address free."""
        row = instance.row
        reason = instance.reason or USER_SHUTDOWN
        network_interfaces.release(row)
        instance.volumes.clear()
        instance.detaching.clear()
        self._moto_terminate(row)
        self._tables.set_state(instance, "terminated", reason)
        instance.terminated_at = self._tables.clock()
        self._on_terminated(instance)

    def record_detached(self, instance: LocalInstance, volume_id: str) -> None:
        """Record that the machine has let go of a volume."""
        volumes.release(instance, volume_id)

    def forget(self, instance: LocalInstance) -> None:
        """Drop a terminated instance from every list.

        EC2 does so after about an hour.
        """
        backend = instance.row.ec2_backend
        for reservation in list(backend.reservations.values()):
            if instance.row in reservation.instances:
                reservation.instances.remove(instance.row)
                if not reservation.instances:
                    del backend.reservations[reservation.id]
        backend.tags.pop(instance.id, None)
        self._tables.instances.pop(instance.id, None)


_ADDRESSES = (
    "private_ip",
    "private_ip_address",
    "private_dns_name",
    "public_ip",
    "public_ip_address",
    "public_dns_name",
)


def _address(_name: str, getter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(instance: Any) -> Any:
        return getter(instance) if instance.nics else None

    return read


def _get_tags(resource: Any) -> list[dict[str, str]]:
    """Return a resource's tags by its id.

    moto matches a pattern with every existing tag.
    """
    tags = resource.ec2_backend.tags.get(resource.id) if resource.id else None
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource.id), "") if tags else ""
    return [
        {"resource_id": resource.id, "key": key, "value": value, "resource_type": kind}
        for key, value in (tags or {}).items()
    ]


def _terminate_instances(response: Any) -> Any:
    """Answer with the states as they are.

    moto returns shutting-down for terminated instances too. As EC2's reference says,
    the call fails if one instance is protected. It then terminates only the instances
    in zones without a protected one among the given.
    """
    ids = response._get_param("InstanceIds", [])
    response.error_on_dryrun()
    backend = response.ec2_backend
    instances = backend.get_multi_instances_by_id(list(dict.fromkeys(ids)))
    protected_instances = [row for row in instances if _is_protected(row)]
    zones = {row.availability_zone for row in protected_instances}
    terminable_ids = [row.id for row in instances if row.availability_zone not in zones]
    changes = (
        backend.terminate_instances(terminable_ids)
        if terminable_ids or not protected_instances
        else []
    )
    if protected_instances:
        message = (
            f"The instance '{protected_instances[0].id}' may not be terminated. Modify its "
            "'disableApiTermination' instance attribute and try again."
        )
        raise ec2_error("OperationNotPermitted", message)
    return ActionResult(
        {
            "TerminatingInstances": [
                {
                    "InstanceId": instance.id,
                    "CurrentState": {"Code": instance.state_code, "Name": instance.state},
                    "PreviousState": previous_state,
                }
                for instance, previous_state in changes
            ]
        }
    )


def _is_protected(instance: Any) -> bool:
    """Return whether DisableApiTermination is set; moto keeps a request's text."""
    return bool(parse_bool(instance.disable_api_termination)) and instance.state in LIVE_STATES
