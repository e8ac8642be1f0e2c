"""The states of instances: asked for by the API, reached when the machine has followed.

The API's calls only move an instance to pending, stopping or shutting-down. The
keeper moves it on to running, stopped or terminated once its machine is there.
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

from toolkit.local.aws.aws_errors import refused
from toolkit.local.aws.instance_tables import USER_SHUTDOWN, Life, Reason, Tables
from toolkit.local.aws.launch_request import truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.local.aws.moto_patches import Patches


class States:
    """Moves instances through their states."""

    def __init__(self, tables: Tables, on_end: Callable[[Life], None]) -> None:
        """`on_end` is told once of each instance that is terminated."""
        self._tables = tables
        self._on_end = on_end
        self._moto_terminate: Any = None
        self._moto_exist: Any = None

    def install(self, patches: Patches) -> None:
        """Put this in place of moto's immediate state changes."""
        states = self

        def terminate(instance: Any) -> Any:
            return states.ask(instance.id, "shutting-down", ALL_BUT_ENDED, USER_SHUTDOWN)

        def stop(instance: Any) -> Any:
            return states.ask(instance.id, "stopping", ("running", "pending"), USER_SHUTDOWN)

        def start(instance: Any) -> Any:
            return states.ask(instance.id, "pending", ("stopped",), None)

        def reboot(instance: Any) -> None:
            states.life(instance.id).reboot = True

        def get_instance(_backend: Any, instance_id: str) -> Any:
            return states.life(instance_id).instance

        def get_instance_by_id(_backend: Any, instance_id: str) -> Any:
            life = states._tables.lives.get(instance_id)
            return life.instance if life else None

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
                    self.life(instance_id)
            exist: bool = self._moto_exist(backend, ids)
            return exist

        return do_resources_exist

    def life(self, instance_id: str) -> Life:
        """Return the instance's row, or refuse as EC2 does."""
        life = self._tables.lives.get(instance_id)
        if life is None:
            message = f"The instance ID '{instance_id}' does not exist"
            raise refused("InvalidInstanceID.NotFound", message)
        return life

    def ask(
        self, instance_id: str, wanted: str, allowed: tuple[str, ...], reason: Reason | None
    ) -> Any:
        """Move an instance towards a state; return the state before.

        Refuses a change that EC2 does not allow.
        """
        life = self.life(instance_id)
        before = copy.copy(life.instance.instance_state)
        if life.state in allowed:
            life.reason = reason
            self._tables.set_state(life, wanted, reason)
        elif wanted != "shutting-down" and life.state in ("shutting-down", "terminated"):
            message = (
                f"The instance '{instance_id}' is not in a state from which it can be {wanted}."
            )
            raise refused("IncorrectInstanceState", message)
        return before

    def finish(self, life: Life) -> None:
        """Record a machine's end: the instance is terminated, its address free."""
        instance = life.instance
        reason = life.reason or USER_SHUTDOWN
        self._moto_terminate(instance)
        self._tables.set_state(life, "terminated", reason)
        for nic in list(instance.nics.values()):
            if nic.id in instance.ec2_backend.enis:
                nic.delete()
        instance.nics = {}
        # Both belong to the subnet again; moto would free them a second time in __del__.
        instance._private_ips = set()
        instance._subnet_id = None
        life.ended = self._tables.clock()
        self._on_end(life)

    def forget(self, life: Life) -> None:
        """Drop a terminated instance from every list.

        EC2 does so after about an hour.
        """
        backend = life.instance.ec2_backend
        for reservation in list(backend.reservations.values()):
            if life.instance in reservation.instances:
                reservation.instances.remove(life.instance)
                if not reservation.instances:
                    del backend.reservations[reservation.id]
        backend.tags.pop(life.id, None)
        self._tables.lives.pop(life.id, None)


ALL_BUT_ENDED = ("pending", "running", "stopping", "stopped")
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
    kept = [one for one in instances if _protected(one)]
    zones = {one.availability_zone for one in kept}
    free = [one.id for one in instances if one.availability_zone not in zones]
    changed = backend.terminate_instances(free) if free or not kept else []
    if kept:
        message = (
            f"The instance '{kept[0].id}' may not be terminated. Modify its "
            "'disableApiTermination' instance attribute and try again."
        )
        raise refused("OperationNotPermitted", message)
    return ActionResult(
        {
            "TerminatingInstances": [
                {
                    "InstanceId": instance.id,
                    "CurrentState": {"Code": instance.state_code, "Name": instance.state},
                    "PreviousState": before,
                }
                for instance, before in changed
            ]
        }
    )


def _protected(instance: Any) -> bool:
    """Return whether DisableApiTermination is set; moto keeps a request's text."""
    return bool(truth(instance.disable_api_termination)) and instance.state in ALL_BUT_ENDED
