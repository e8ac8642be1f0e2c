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
from toolkit.config.hardware import IMAGE_GIB
from toolkit.deploy import images, names
from toolkit.deploy.boot_progress import BootStatus
from toolkit.deploy.instances import NOT_TERMINATING
from toolkit.deploy.session import error_code
from toolkit.deploy.user_data import builder_script
from toolkit.errors import ImageBuildFailed
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_ec2.type_defs import TagTypeDef

    from toolkit.config import ClusterConfig
    from toolkit.deploy.images import BaseImage, ImageSpec
    from toolkit.deploy.session import Clients
    from toolkit.deploy.storage import Bucket
    from toolkit.output import Phase

IMAGE_TAG = "toolkit:image"
# Compiling GPU drivers takes half an hour on a small instance; nothing takes longer.
BUILD_SECONDS = 3600.0
COPY_SECONDS = 1800.0
# EC2 knows a new instance profile of IAM within this time.
PROFILE_SECONDS = 60.0
CONSOLE_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class BuildResources:
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
        resources: BuildResources,
        base: BaseImage,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ec2 = clients.client("ec2")
        self._config = config
        self._resources = resources
        self._base = base
        self._sleep = sleep
        self._clock = clock

    def build(self, spec: ImageSpec, phase: Phase) -> str:
        """Build an image and return its id.

        Continues an interrupted build. Raises ImageBuildFailed with the step and the
        cause.
        """
        self._resources.bucket.upload(spec.bundle)
        instance = self._find_unfinished(spec)
        if not instance:
            self._resources.bucket.delete(names.image_status(spec.name))
            instance = self._launch(spec)
        try:
            phase.update(f"builder {instance} starts")
            self._wait_until_stopped(spec, instance, phase)
            return self._create_image(spec, instance, phase)
        except (ImageBuildFailed, ClientError):
            # Another deploy may have waited for the same builder, and made the image first.
            other_image = images.find(self._ec2, [spec.name]).get(spec.name)
            if other_image is None:
                raise
            wait_until_available(self._ec2, other_image.id, self._sleep, self._clock)
            return other_image.id
        finally:
            self._ec2.terminate_instances(InstanceIds=[instance])

    def _status(self, spec: ImageSpec) -> BootStatus | None:
        return BootStatus.parse(self._resources.bucket.read_json(names.image_status(spec.name)))

    def _find_unfinished(self, spec: ImageSpec) -> str:
        """Return a killed deploy's builder of this image, or "".

        Failed and duplicate builders are terminated.
        """
        response = self._ec2.describe_instances(
            Filters=[
                {"Name": f"tag:{IMAGE_TAG}", "Values": [spec.name]},
                {"Name": "instance-state-name", "Values": list(NOT_TERMINATING)},
            ]
        )
        ids = [
            item["InstanceId"] for group in response["Reservations"] for item in group["Instances"]
        ]
        status = self._status(spec)
        kept_id = ids[0] if ids and (status is None or status.state != "failed") else ""
        surplus_ids = [instance for instance in ids if instance != kept_id]
        if surplus_ids:
            self._ec2.terminate_instances(InstanceIds=surplus_ids)
        return kept_id

    def _launch(self, spec: ImageSpec) -> str:
        request = self._request(spec)
        wait = Wait(PROFILE_SECONDS, self._sleep, self._clock)
        while True:
            try:
                return self._ec2.run_instances(**request)["Instances"][0]["InstanceId"]
            except ClientError as error:
                unknown_profile = "profile" in str(error).lower()
                if error_code(error) != "InvalidParameterValue" or not unknown_profile:
                    raise
                if wait.is_over:
                    raise
            wait.pause()

    def _request(self, spec: ImageSpec) -> dict[str, Any]:
        tag_list = [
            {"Key": tags.NAME, "Value": f"builder of {spec.name}"},
            {"Key": tags.ROLE, "Value": names.ROLE_BUILDER},
            {"Key": IMAGE_TAG, "Value": spec.name},
        ]
        # Packages come from the internet; the default group lets no connection in.
        network = {"AssociatePublicIpAddress": True, "SubnetId": self._resources.subnet}
        disk = {"VolumeSize": IMAGE_GIB, "VolumeType": "gp3", "Encrypted": True}
        return {
            "ImageId": self._base.id,
            "InstanceType": self._config.images.builder_type,
            "MinCount": 1,
            "MaxCount": 1,
            "IamInstanceProfile": {"Name": self._resources.profile},
            "InstanceInitiatedShutdownBehavior": "stop",
            "NetworkInterfaces": [{"DeviceIndex": 0, "DeleteOnTermination": True, **network}],
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 1,
                "InstanceMetadataTags": "enabled",
            },
            "BlockDeviceMappings": [
                {"DeviceName": self._base.root_device, "Ebs": {"DeleteOnTermination": True, **disk}}
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tag_list} for kind in ("instance", "volume")
            ],
            "UserData": builder_script(
                self._config,
                bucket=self._resources.bucket.name,
                image=spec.name,
                sha=spec.bundle.sha,
            ),
        }

    def _wait_until_stopped(self, spec: ImageSpec, instance: str, phase: Phase) -> None:
        """Wait until the builder is stopped.

        It stops itself if, and only if, its playbook succeeded. Raises
        ImageBuildFailed.
        """
        wait = Wait(BUILD_SECONDS, self._sleep, self._clock)
        while True:
            state = self._state(instance)
            status = self._status(spec)
            if status is not None:
                phase.update(status.task, done=status.done, total=status.total)
            if status is not None and status.state == "failed":
                raise self._failure(spec, status.failure)
            if state == "stopped":
                if status is not None and status.state == "ok":
                    return
                raise self._failure(
                    spec, self._console(instance, "stopped before its playbook was done")
                )
            if state in {"shutting-down", "terminated"}:
                raise self._failure(spec, self._console(instance, f"is {state}"))
            if wait.is_over:
                raise self._failure(spec, self._console(instance, f"is {state} after an hour"))
            wait.pause()

    def _state(self, instance: str) -> str:
        try:
            reservations = self._ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        except ClientError as error:
            if error_code(error) == "InvalidInstanceID.NotFound":
                return "pending"  # EC2 will know it in a moment
            raise
        return str(reservations[0]["Instances"][0]["State"]["Name"]) if reservations else "pending"

    def _create_image(self, spec: ImageSpec, instance: str, phase: Phase) -> str:
        tag_list: Sequence[TagTypeDef] = [
            {"Key": tags.NAME, "Value": spec.name},
            {"Key": tags.ROLE, "Value": names.ROLE_BUILDER},
            {"Key": images.SLURM_TAG, "Value": spec.slurm},
        ]
        phase.update("copying the disk")
        image = self._ec2.create_image(
            InstanceId=instance,
            Name=spec.name,
            Description=f"slurm-ec2-toolkit, {spec.kind} node, on {self._base.name}",
            TagSpecifications=[
                {"ResourceType": "image", "Tags": tag_list},
                {"ResourceType": "snapshot", "Tags": tag_list},
            ],
        )["ImageId"]
        wait_until_available(self._ec2, image, self._sleep, self._clock)
        phase.update(f"{image} is available")
        return image

    def _console(self, instance: str, problem: str) -> str:
        """Return the end of the instance's console output.

        It is needed if the instance could not write to the bucket.
        """
        try:
            output = self._ec2.get_console_output(InstanceId=instance).get("Output", "")
        except ClientError:
            output = ""
        return f"builder {instance} {problem}\n{output[-CONSOLE_SHOWN:]}".rstrip()

    def _failure(self, spec: ImageSpec, problem: str) -> ImageBuildFailed:
        log = f"s3://{self._resources.bucket.name}/{names.image_status(spec.name)}"
        return ImageBuildFailed(
            f"image {spec.name}: {problem}",
            next_step=f"read {log.removesuffix('.json')}.log, mend the cause, then run it again",
        )


def wait_until_available(
    ec2: Any, image: str, sleep: Callable[[float], None], clock: Callable[[], float]
) -> None:
    """Wait for an image that is being copied.

    Raises ImageBuildFailed.
    """
    wait = Wait(COPY_SECONDS, sleep, clock)
    while True:
        response = ec2.describe_images(ImageIds=[image])["Images"]
        state = response[0]["State"] if response else "pending"
        if state == "available":
            return
        if state in {"failed", "error", "invalid", "deregistered"} or wait.is_over:
            reason = response[0].get("StateReason", {}).get("Message", "") if response else ""
            raise ImageBuildFailed(f"image {image} is {state}: {reason}")
        wait.pause()
