"""Builds an image: a builder runs ansible/image.yml, stops, and becomes the image.

A builder is found again by its tag, so an interrupted build continues where it was. It
is always terminated in the end, since it costs money.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slurmplugins.cloud import tags
from toolkit.deploy import images, names
from toolkit.deploy.boot_progress import BootStatus
from toolkit.deploy.session import error_code
from toolkit.deploy.stack import builder_script
from toolkit.errors import ImageBuildFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_ec2.type_defs import TagTypeDef

    from toolkit.config import ClusterConfig
    from toolkit.deploy.images import BaseImage, ImageSpec
    from toolkit.deploy.session import Clients
    from toolkit.deploy.storage import Bucket
    from toolkit.output import Phase

IMAGE_TAG = "toolkit:image"
POLL_SECONDS = 2.0
# Compiling GPU drivers takes half an hour on a small instance; nothing takes longer.
BUILD_SECONDS = 3600.0
COPY_SECONDS = 1800.0
# EC2 knows a new instance profile of IAM within this time.
PROFILE_SECONDS = 60.0
BUILDER_GIB = 30
CONSOLE_SHOWN = 2000
ALIVE = ["pending", "running", "stopping", "stopped"]


@dataclass(frozen=True, slots=True)
class Workplace:
    """The resources that all builds share (toolkit.deploy.image_build_stack)."""

    bucket: Bucket
    profile: str  # instance profile of builders
    subnet: str


class Builder:
    """A builder of images."""

    def __init__(
        self,
        clients: Clients,
        config: ClusterConfig,
        place: Workplace,
        base: BaseImage,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ec2 = clients.client("ec2")
        self._config = config
        self._place = place
        self._base = base
        self._sleep = sleep
        self._clock = clock

    def build(self, spec: ImageSpec, phase: Phase) -> str:
        """Build an image and return its id.

        Continues an interrupted build. Raises ImageBuildFailed with the step and the
        cause.
        """
        self._place.bucket.upload(spec.bundle)
        instance = self._unfinished(spec)
        if not instance:
            self._place.bucket.delete(names.image_status(spec.name))
            instance = self._launch(spec)
        try:
            phase.update(f"builder {instance} starts")
            self._wait_until_off(spec, instance, phase)
            return self._copy(spec, instance, phase)
        except (ImageBuildFailed, ClientError):
            # Another deploy may have waited for the same builder, and made the image first.
            theirs = images.find(self._ec2, [spec.name]).get(spec.name)
            if theirs is None:
                raise
            wait_until_available(self._ec2, theirs.id, self._sleep, self._clock)
            return theirs.id
        finally:
            self._ec2.terminate_instances(InstanceIds=[instance])

    def _status(self, spec: ImageSpec) -> BootStatus | None:
        return BootStatus.parse(self._place.bucket.read_json(names.image_status(spec.name)))

    def _unfinished(self, spec: ImageSpec) -> str:
        """Return a killed deploy's builder of this image, or "".

        Failed and duplicate builders are terminated.
        """
        found = self._ec2.describe_instances(
            Filters=[
                {"Name": f"tag:{IMAGE_TAG}", "Values": [spec.name]},
                {"Name": "instance-state-name", "Values": ALIVE},
            ]
        )
        ids = [item["InstanceId"] for group in found["Reservations"] for item in group["Instances"]]
        status = self._status(spec)
        keep = ids[0] if ids and (status is None or status.state != "failed") else ""
        spare = [instance for instance in ids if instance != keep]
        if spare:
            self._ec2.terminate_instances(InstanceIds=spare)
        return keep

    def _launch(self, spec: ImageSpec) -> str:
        request = self._request(spec)
        deadline = self._clock() + PROFILE_SECONDS
        while True:
            try:
                return self._ec2.run_instances(**request)["Instances"][0]["InstanceId"]
            except ClientError as error:
                unknown_profile = "profile" in str(error).lower()
                if error_code(error) != "InvalidParameterValue" or not unknown_profile:
                    raise
                if self._clock() > deadline:
                    raise
            self._sleep(POLL_SECONDS)

    def _request(self, spec: ImageSpec) -> dict[str, Any]:
        label = [
            {"Key": tags.NAME, "Value": f"builder of {spec.name}"},
            {"Key": tags.ROLE, "Value": names.ROLE_BUILDER},
            {"Key": IMAGE_TAG, "Value": spec.name},
        ]
        return {
            "ImageId": self._base.id,
            "InstanceType": self._config.images.builder_type,
            "MinCount": 1,
            "MaxCount": 1,
            "IamInstanceProfile": {"Name": self._place.profile},
            "InstanceInitiatedShutdownBehavior": "stop",
            # Packages come from the internet; the default group lets no connection in.
            "NetworkInterfaces": [
                {
                    "DeviceIndex": 0,
                    "SubnetId": self._place.subnet,
                    "AssociatePublicIpAddress": True,
                    "DeleteOnTermination": True,
                }
            ],
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 1,
                "InstanceMetadataTags": "enabled",
            },
            "BlockDeviceMappings": [
                {
                    "DeviceName": self._base.root_device,
                    "Ebs": {
                        "VolumeSize": BUILDER_GIB,
                        "VolumeType": "gp3",
                        "Encrypted": True,
                        "DeleteOnTermination": True,
                    },
                }
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": label} for kind in ("instance", "volume")
            ],
            "UserData": builder_script(
                self._config,
                bucket=self._place.bucket.name,
                image=spec.name,
                sha=spec.bundle.sha,
            ),
        }

    def _wait_until_off(self, spec: ImageSpec, instance: str, phase: Phase) -> None:
        """Wait until the builder is stopped.

        It stops itself if, and only if, its playbook succeeded. Raises
        ImageBuildFailed.
        """
        deadline = self._clock() + BUILD_SECONDS
        while True:
            state = self._state(instance)
            status = self._status(spec)
            if status is not None:
                phase.update(status.task, done=status.done, total=status.total)
            if status is not None and status.state == "failed":
                raise self._failed(spec, status.failure)
            if state == "stopped":
                if status is not None and status.state == "ok":
                    return
                raise self._failed(spec, self._console(instance, "turned off too early"))
            if state in {"shutting-down", "terminated"}:
                raise self._failed(spec, self._console(instance, f"is {state}"))
            if self._clock() > deadline:
                raise self._failed(spec, self._console(instance, f"is {state} after an hour"))
            self._sleep(POLL_SECONDS)

    def _state(self, instance: str) -> str:
        try:
            found = self._ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        except ClientError as error:
            if error_code(error) == "InvalidInstanceID.NotFound":
                return "pending"  # EC2 will know it in a moment
            raise
        return str(found[0]["Instances"][0]["State"]["Name"]) if found else "pending"

    def _copy(self, spec: ImageSpec, instance: str, phase: Phase) -> str:
        label: Sequence[TagTypeDef] = [
            {"Key": tags.NAME, "Value": spec.name},
            {"Key": tags.ROLE, "Value": names.ROLE_BUILDER},
        ]
        phase.update("taking the image")
        image = self._ec2.create_image(
            InstanceId=instance,
            Name=spec.name,
            Description=f"slurm-ec2-toolkit, {spec.kind} node, on {self._base.name}",
            TagSpecifications=[
                {"ResourceType": "image", "Tags": label},
                {"ResourceType": "snapshot", "Tags": label},
            ],
        )["ImageId"]
        wait_until_available(self._ec2, image, self._sleep, self._clock)
        phase.update(f"{image} is there")
        return image

    def _console(self, instance: str, what: str) -> str:
        """Return the end of the instance's console output.

        It is needed if the instance could not write to the bucket.
        """
        try:
            said = self._ec2.get_console_output(InstanceId=instance).get("Output", "")
        except ClientError:
            said = ""
        return f"builder {instance} {what}\n{said[-CONSOLE_SHOWN:]}".rstrip()

    def _failed(self, spec: ImageSpec, why: str) -> ImageBuildFailed:
        log = f"s3://{self._place.bucket.name}/{names.image_status(spec.name)}"
        return ImageBuildFailed(
            f"image {spec.name}: {why}",
            next_step=f"the whole log is {log.removesuffix('.json')}.log; mend, and run it again",
        )


def wait_until_available(
    ec2: Any, image: str, sleep: Callable[[float], None], clock: Callable[[], float]
) -> None:
    """Wait for an image that is being copied.

    Raises ImageBuildFailed.
    """
    deadline = clock() + COPY_SECONDS
    while True:
        found = ec2.describe_images(ImageIds=[image])["Images"]
        state = found[0]["State"] if found else "pending"
        if state == "available":
            return
        if state in {"failed", "error", "invalid", "deregistered"} or clock() > deadline:
            reason = found[0].get("StateReason", {}).get("Message", "") if found else ""
            raise ImageBuildFailed(f"image {image} is {state}: {reason}")
        sleep(POLL_SECONDS)
