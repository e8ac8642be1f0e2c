"""Machine images: moto's table of them, backed by what is on disk."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.responses import EC2Response
from moto.ec2.utils import random_ami_id

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.launch_request import tags_by_type
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolkit.local.aws.instance_states import States
    from toolkit.local.aws.instance_tables import LocalInstance, Tables
    from toolkit.local.aws.moto_patches import Patches

_PATIENCE = 120.0  # seconds an instance may take to stop or to start
_POLL = 0.1
BASE_OWNER = "136693071363"  # Debian's account, whose images people look up by name
BASE_NAME = "debian-13-amd64-local"


@dataclass(frozen=True, slots=True)
class Image:
    """An image as it is kept between two runs of the local cloud."""

    id: str
    name: str
    owner: str
    region: str
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0


class ImageRegistry(Protocol):
    """A place where images are kept."""

    def images(self) -> tuple[Image, ...]:
        """Return every image that is whole."""

    def add(self, image: Image, instance_id: str) -> None:
        """Keep the disk of a stopped machine as the image; slow."""

    def remove(self, image_id: str) -> None:
        """Remove an image; machines that run from it keep running."""


class Images:
    """CreateImage, RegisterImage and DeregisterImage over an image registry."""

    def __init__(
        self,
        tables: Tables,
        registry: ImageRegistry,
        defer: Callable[[Callable[[], None]], None],
        states: States,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Keep the parts; `defer` runs slow work in its own thread.

        `sleep` may wait there.
        """
        self._tables = tables
        self._registry = registry
        self._defer = defer
        self._states = states
        self._sleep = sleep

    def install(self, patches: Patches) -> None:
        """Put this in place of moto's images without content."""
        images = self

        def load(backend: Any) -> None:
            for image in images._registry.images():
                if image.region in (backend.region_name, "*"):
                    backend.amis[image.id] = _row(backend, image, "available")

        def create_image(response: Any) -> Any:
            response.error_on_dryrun()
            return ActionResult({"ImageId": images.create(response.region, response.params)})

        def register_image(_response: Any) -> Any:
            raise ec2_error(
                "InvalidRequest",
                "The local cloud keeps images, not snapshots: make one with CreateImage.",
            )

        def deregister_image(response: Any) -> Any:
            response.error_on_dryrun()
            images.deregister(response.region, str(response.params["ImageId"]))
            return EmptyResult()

        patches.replace(AmiBackend, "_load_amis", load)
        patches.replace(EC2Response, "create_image", create_image)
        patches.replace(EC2Response, "register_image", register_image)
        patches.replace(EC2Response, "deregister_image", deregister_image)

    def create(self, region: str, params: Mapping[str, Any]) -> str:
        """Begin an image of an instance; it is pending until complete."""
        backend = self._tables.ec2(region)
        instance = self._tables.instances.get(str(params["InstanceId"]))
        if instance is None or instance.state in ("shutting-down", "terminated"):
            message = f"The instance ID '{params['InstanceId']}' does not exist"
            raise ec2_error("InvalidInstanceID.NotFound", message)
        name = str(params["Name"])
        if any(row.name == name and row.owner_id == backend.account_id for row in _rows(backend)):
            message = f"AMI name {name} is already in use by AMI"
            raise ec2_error("InvalidAMIName.Duplicate", message)
        image = Image(
            id=random_ami_id(),
            name=name,
            owner=backend.account_id,
            region=region,
            description=str(params.get("Description") or ""),
            tags=tags_by_type(params.get("TagSpecifications") or ()).get("image", {}),
            created=self._tables.wall(),
        )
        row = _row(backend, image, "pending")
        row.instance_id = instance.id
        backend.amis[image.id] = row
        self._defer(lambda: self._add_image(image, instance, row))
        return image.id

    def _add_image(self, image: Image, instance: LocalInstance, row: Any) -> None:
        """Keep the disk; a running instance is stopped and started.

        EC2 would reboot it.
        """
        was_running = instance.state in ("pending", "running")
        try:
            if was_running:
                self._change_state(instance, "stopping", "stopped", ("pending", "running"))
            self._registry.add(image, instance.id)
            if was_running:
                self._change_state(instance, "pending", "running", ("stopped",))
        except Exception as error:
            with self._tables.lock:
                row.state = "failed"
                row.state_reason = {"Code": "Server.InternalError", "Message": str(error)}
            raise
        with self._tables.lock:
            row.state = "available"

    def _change_state(
        self,
        instance: LocalInstance,
        requested_state: str,
        expected_state: str,
        allowed: tuple[str, ...],
    ) -> None:
        with self._tables.lock:
            self._states.request_state(instance.id, requested_state, allowed, None)
        wait = Wait(_PATIENCE, self._sleep, self._tables.clock, pause=_POLL)
        while instance.state != expected_state:
            if instance.terminated_at is not None or wait.is_over:
                raise RuntimeError(f"{instance.id} is {instance.state} and not {expected_state}")
            wait.pause()

    def deregister(self, region: str, image_id: str) -> None:
        """Forget an image; instances that run from it go on."""
        backend = self._tables.ec2(region)
        row = backend.amis.get(image_id)
        if row is None:
            message = f"The image id '[{image_id}]' does not exist"
            raise ec2_error("InvalidAMIID.NotFound", message)
        if row.owner_id != backend.account_id:
            raise ec2_error("AuthFailure", f"Not authorized for image:{image_id}")
        backend.deregister_image(image_id)
        self._registry.remove(image_id)


def _rows(backend: Any) -> list[Any]:
    return list(backend.amis.values())


def _row(backend: Any, image: Image, state: str) -> Any:
    """Return moto's row of an image."""
    return Ami(
        backend,
        image.id,
        name=image.name,
        description=image.description or None,
        owner_id=image.owner,
        public=image.owner != backend.account_id,
        state=state,
        creation_date=datetime.fromtimestamp(image.created, UTC).replace(tzinfo=None),
        virtualization_type="hvm",
        architecture="x86_64",
        hypervisor="xen",
        root_device_type="ebs",
        root_device_name="/dev/xvda",
        image_location=f"{image.owner}/{image.name}",
        region_name=f"{backend.region_name}a",
        tags=dict(image.tags) or None,
    )
