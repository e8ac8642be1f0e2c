"""The stack that all image builds share, and the builds side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit.deploy import abandoned_builders, images, names
from toolkit.deploy.boot_progress import SharedPhase
from toolkit.deploy.build import Builder, BuildResources, wait_until_available
from toolkit.deploy.changes import StackChanges
from toolkit.deploy.package_store import PackageStore
from toolkit.deploy.stack import images_template
from toolkit.deploy.stack_outputs import stack_resources
from toolkit.deploy.storage import Bucket
from toolkit.errors import ImageBuildFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.deploy.images import ImageInput, ImageSpec
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter


def prepare_stack(config: ClusterConfig, clients: Clients, report: Reporter) -> BuildResources:
    """Make or update the stack of image builds; return its parts."""
    changes = StackChanges(
        clients,
        names.IMAGES_STACK,
        tags={tags.ROLE: names.ROLE_BUILDER},
        named_roles=config.iam.name_prefix is not None,
    )
    plan = changes.plan(images_template(config, clients.account))
    if plan.change_set:
        with report.phase("Preparing image builds") as phase:
            changes.execute(plan, phase)
    resource_ids = stack_resources(clients, names.IMAGES_STACK)
    return BuildResources(
        bucket=Bucket(clients.client("s3"), names.images_bucket(config, clients.account)),
        profile=resource_ids["BuilderProfile"],
        subnet=builder_subnet(config, clients),
    )


def ensure_images(
    config: ClusterConfig, clients: Clients, source: ImageInput, report: Reporter
) -> dict[str, str]:
    """Build the images that the cluster lacks; return image ids by kind."""
    ec2 = clients.client("ec2")
    specs = images.required_images(config, source)
    images_by_name = images.find(ec2, [spec.name for spec in specs])
    for image in images_by_name.values():
        if image.state == "pending":
            wait_until_available(ec2, image.id, sleep, monotonic)
    abandoned_builders.terminate(
        ec2, abandoned_builders.find_abandoned(ec2, abandoned_builders.now())
    )
    missing_specs = [spec for spec in specs if spec.name not in images_by_name]
    built_ids = (
        _build_images(config, clients, source, missing_specs, report) if missing_specs else {}
    )
    return {spec.kind: built_ids.get(spec.name) or images_by_name[spec.name].id for spec in specs}


def _build_images(
    config: ClusterConfig,
    clients: Clients,
    source: ImageInput,
    missing_specs: Sequence[ImageSpec],
    report: Reporter,
) -> dict[str, str]:
    resources = prepare_stack(config, clients, report)
    if source.packages is not None:
        with report.phase(f"Caching {source.packages}") as phase:
            copied = PackageStore(clients, resources.bucket).cache(source.packages, phase)
            phase.result(f"{copied} of {len(source.packages.packages)} packages copied")
    kinds = " and ".join(spec.kind for spec in missing_specs)
    with (
        report.phase(f"Building the {kinds} image") as phase,
        ThreadPoolExecutor(len(missing_specs)) as threads,
    ):
        shared_phase, stop = SharedPhase(phase), Event()
        builder = Builder(clients, config, resources, source.base, sleep=_interruptible_sleep(stop))
        futures = {
            spec.name: threads.submit(builder.build, spec, shared_phase.operation(spec.kind))
            for spec in missing_specs
        }
        try:
            # All builds end, and terminate their builders, before the first failure is raised.
            failures = [
                error for future in futures.values() if (error := future.exception()) is not None
            ]
        except BaseException:
            stop.set()
            raise
        if failures:
            raise failures[0]
        phase.result(", ".join(futures))
        return {name: future.result() for name, future in futures.items()}


def _interruptible_sleep(stop: Event) -> Callable[[float], None]:
    """Return a sleep that ends the build when `stop` is set.

    A person may interrupt the deploy.
    """

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise ImageBuildFailed("the build was stopped")

    return pause


def builder_subnet(config: ClusterConfig, clients: Clients) -> str:
    """Return the subnet of image builders. Raises ImageBuildFailed without any."""
    if config.images.subnet:
        return config.images.subnet
    subnets = clients.client("ec2").describe_subnets(
        Filters=[{"Name": "default-for-az", "Values": ["true"]}]
    )["Subnets"]
    if not subnets:
        raise ImageBuildFailed(
            "the image builder needs a default VPC, and the account has none",
            next_step="set images.subnet in cluster.yaml to a subnet with internet access",
        )
    return min(subnets, key=lambda subnet: subnet["AvailabilityZone"])["SubnetId"]
