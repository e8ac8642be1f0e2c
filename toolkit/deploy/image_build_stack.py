"""The stack that all image builds share, and the builds side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit.deploy import abandoned_builders, images, names
from toolkit.deploy.boot_progress import Shared
from toolkit.deploy.build import Builder, Workplace, wait_until_available
from toolkit.deploy.changes import StackChanges
from toolkit.deploy.stack import images_template
from toolkit.deploy.stack_outputs import stack_resources
from toolkit.deploy.storage import Bucket
from toolkit.errors import ImageBuildFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.deploy.images import BaseImage, ImageSpec
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter


def prepare(config: ClusterConfig, clients: Clients, report: Reporter) -> Workplace:
    """Make or update the stack of image builds; return its parts."""
    changes = StackChanges(clients, names.IMAGES_STACK, tags={tags.ROLE: names.ROLE_BUILDER})
    plan = changes.plan(images_template(config, clients.account))
    if plan.change_set:
        with report.phase("Preparing image builds") as phase:
            changes.execute(plan, phase)
    found = stack_resources(clients, names.IMAGES_STACK)
    return Workplace(
        bucket=Bucket(clients.client("s3"), names.images_bucket(config, clients.account)),
        profile=found["BuilderProfile"],
        subnet=config.images.subnet or _public_subnet(clients),
    )


def ensure(
    config: ClusterConfig, clients: Clients, base: BaseImage, report: Reporter
) -> dict[str, str]:
    """Build the images that the cluster lacks; return image ids by kind."""
    ec2 = clients.client("ec2")
    specs = images.wanted(config, base)
    found = images.find(ec2, [spec.name for spec in specs])
    for image in found.values():
        if image.state == "pending":
            wait_until_available(ec2, image.id, sleep, monotonic)
    abandoned_builders.end(ec2, abandoned_builders.forgotten(ec2, abandoned_builders.now()))
    missing = [spec for spec in specs if spec.name not in found]
    built = _build(config, clients, base, missing, report) if missing else {}
    return {spec.kind: built.get(spec.name) or found[spec.name].id for spec in specs}


def _build(
    config: ClusterConfig,
    clients: Clients,
    base: BaseImage,
    missing: Sequence[ImageSpec],
    report: Reporter,
) -> dict[str, str]:
    place = prepare(config, clients, report)
    kinds = " and ".join(spec.kind for spec in missing)
    with (
        report.phase(f"Building the {kinds} image") as phase,
        ThreadPoolExecutor(len(missing)) as threads,
    ):
        shared, stop = Shared(phase), Event()
        builder = Builder(clients, config, place, base, sleep=_pause(stop))
        work = {
            spec.name: threads.submit(builder.build, spec, shared.part(spec.kind))
            for spec in missing
        }
        try:
            # All builds end, and terminate their builders, before the first failure is raised.
            failures = [error for job in work.values() if (error := job.exception()) is not None]
        except BaseException:
            stop.set()
            raise
        if failures:
            raise failures[0]
        phase.result(", ".join(work))
        return {name: job.result() for name, job in work.items()}


def _pause(stop: Event) -> Callable[[float], None]:
    """Return a sleep that ends the build when `stop` is set.

    A person may interrupt the deploy.
    """

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise ImageBuildFailed("the build was stopped")

    return pause


def _public_subnet(clients: Clients) -> str:
    found = clients.client("ec2").describe_subnets(
        Filters=[{"Name": "default-for-az", "Values": ["true"]}]
    )["Subnets"]
    if not found:
        raise ImageBuildFailed(
            "there is no default VPC for the builder",
            next_step="name a subnet with a way to the internet as images.subnet in cluster.yaml",
        )
    return min(found, key=lambda subnet: subnet["AvailabilityZone"])["SubnetId"]
