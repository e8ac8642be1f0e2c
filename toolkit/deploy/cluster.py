"""Deploys images, stack, bundle and head node, in that order; skips what is up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit import assets
from toolkit.deploy import image_build_stack, images, names
from toolkit.deploy.bundle import Bundle, cluster_bundle, different, pack
from toolkit.deploy.changes import Plan, StackChanges
from toolkit.deploy.head import find
from toolkit.deploy.head_setup import HeadBoot
from toolkit.deploy.pricing import head_price, price_table
from toolkit.deploy.stack import Facts, template
from toolkit.deploy.stack_outputs import stack_facts
from toolkit.deploy.storage import Bucket
from toolkit.errors import NotConfirmed
from toolkit.render import bundle_files

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter

# A placeholder for an image that a plan would build first.
NOT_BUILT = "ami-00000000000000000"


@dataclass(frozen=True, slots=True)
class Intent:
    """The changes that deploy would make."""

    plan: Plan
    missing_images: tuple[str, ...]
    new_bundle: bool

    @property
    def nothing(self) -> bool:
        """Return whether deploy would change nothing."""
        return not (self.plan.change_set or self.missing_images or self.new_bundle)

    def text(self) -> str:
        """Return the changes as text for people."""
        lines = [f"+ image {name} (built first)" for name in self.missing_images]
        lines += [str(change) for change in self.plan.changes]
        if self.plan.change_set and not self.plan.changes:
            lines.append("~ tags or outputs of the stack")
        if self.new_bundle:
            lines.append("~ head node: new settings or playbooks, applied to the running machine")
        return "\n".join(lines) or "no changes"


class Cluster:
    """Deploys one cluster."""

    def __init__(self, config: ClusterConfig, clients: Clients, report: Reporter) -> None:
        self._config = config
        self._clients = clients
        self._report = report
        self._bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))
        self._changes = StackChanges(
            clients,
            names.stack(config),
            tags={tags.CLUSTER: config.cluster},
            store_template=self._store_template,
        )
        self._boot = HeadBoot(clients, config, self._bucket)

    def preview(self) -> Intent:
        """Return the changes that deploy would make; changes nothing."""
        base = images.find_base(self._clients.client("ec2"), self._config)
        specs = images.wanted(self._config, base)
        found = images.find(self._clients.client("ec2"), [spec.name for spec in specs])
        ids = {
            spec.kind: found[spec.name].id if spec.name in found else NOT_BUILT for spec in specs
        }
        plan = self._changes.plan(self._template(base, ids))
        self._changes.discard(plan)
        missing = tuple(spec.name for spec in specs if spec.name not in found)
        new_bundle = not plan.creates and not self._boot.is_at(self._bundle().sha)
        return Intent(plan, missing, new_bundle)

    def deploy(self, *, yes: bool) -> Intent:
        """Bring the cluster to the state of cluster.yaml, and wait.

        May be repeated. Raises NotConfirmed before anything is lost, unless `yes`.
        """
        base = images.find_base(self._clients.client("ec2"), self._config)
        ids = image_build_stack.ensure(self._config, self._clients, base, self._report)
        with self._report.phase("Comparing the stack") as phase:
            plan = self._changes.plan(self._template(base, ids))
            phase.result(f"{len(plan.changes)} changes" if plan.change_set else "no changes")
        for change in plan.changes if not plan.creates else ():
            self._report.line(str(change))
        if plan.loses and not yes:
            self._changes.discard(plan)
            lost = ", ".join(change.logical_id for change in plan.loses)
            raise NotConfirmed(
                f"this would, or may, remove or replace {lost}", next_step="say so with --yes"
            )
        if plan.change_set:
            verb = "Creating" if plan.creates else "Updating"
            with self._report.phase(f"{verb} stack {plan.stack}") as phase:
                self._changes.execute(plan, phase)
        return Intent(plan, (), self.apply())

    def apply(self, *, force: bool = False) -> bool:
        """Apply the current settings to the head node; return whether it changed."""
        bundle = self._bundle()
        current = self._bucket.current()
        if current == bundle.sha and self._boot.is_at(bundle.sha) and not force:
            return False
        if current != bundle.sha:
            self._bucket.upload(bundle)
            # Last: a booting head node fetches the bundle that this names.
            self._bucket.write(names.BUNDLE_CURRENT, bundle.sha.encode())
        with self._report.phase("Setting up the head node") as phase:
            if force:
                self._boot.rerun(bundle.sha, phase)
            else:
                self._boot.bring_to(bundle.sha, phase)
        return True

    def unapplied(self) -> tuple[str, ...]:
        """Return the bundle's files that the head node lacks or has outdated.

        They are all files if the head node's bundle is not in the bucket.
        """
        bundle, status = self._bundle(), self._boot.status()
        has = self._bucket.read(names.bundle(status.bundle)) if status is not None else None
        return different(has or pack({}).data, bundle.data)

    def _bundle(self) -> Bundle:
        return cluster_bundle(
            bundle_files(
                self._config,
                stack_facts(self._config, self._clients),
                price_table(self._config, self._clients, self._bucket),
                templates=assets.directory("templates"),
            )
        )

    def _template(self, base: images.BaseImage, ids: dict[str, str]) -> str:
        # A running head node keeps its image: the playbook brings it up to date in place.
        # Replacing it would end slurmctld and the accounting database.
        running = find(self._clients, self._config)
        facts = Facts(
            account=self._clients.account,
            head_image=running["ImageId"] if running is not None else ids["head"],
            compute_image=ids["compute"],
            root_device=base.root_device,
            head_price=head_price(self._config),
        )
        return template(self._config, facts)

    def _store_template(self, body: str) -> str:
        """Store a template too large for a request in the images bucket.

        That bucket exists before the cluster's.
        """
        place = image_build_stack.prepare(self._config, self._clients, self._report)
        key = f"templates/{names.stack(self._config)}.yaml"
        place.bucket.write(key, body.encode())
        endpoint = self._clients.client("s3").meta.endpoint_url
        return f"{endpoint}/{place.bucket.name}/{key}"
