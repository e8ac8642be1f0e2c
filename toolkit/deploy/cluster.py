"""Deploys images, stack, bundle and head node, in that order; skips what is up to date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit import assets
from toolkit.deploy import image_build_stack, image_lock, images, names
from toolkit.deploy.backup_store import BackupStore
from toolkit.deploy.bundle import Bundle, cluster_bundle, differing_paths, pack
from toolkit.deploy.changes import StackChanges
from toolkit.deploy.head import find_head
from toolkit.deploy.head_change import HEAD, PARTS, NewHead, new_head, restarts
from toolkit.deploy.head_setup import HeadSetup
from toolkit.deploy.pricing import head_price, price_table
from toolkit.deploy.stack import TemplateFacts, stack_template
from toolkit.deploy.stack_outputs import stack_facts, stack_resources
from toolkit.deploy.stack_plan import ResourceChange, StackPlan, resources
from toolkit.deploy.stopped_head import stopped_head
from toolkit.deploy.storage import Bucket
from toolkit.errors import NotConfirmed, StackMissing
from toolkit.render import bundle_files

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.session import Clients
    from toolkit.output import Reporter

# A placeholder for an image that a plan would build first.
NOT_BUILT = "ami-00000000000000000"


@dataclass(frozen=True, slots=True)
class DeployPreview:
    """The changes that deploy would make."""

    plan: StackPlan
    missing_images: tuple[str, ...]
    new_bundle: bool
    new_head: NewHead | None = None
    head_restarts: bool = False
    backup_changes: tuple[ResourceChange, ...] = ()
    """Changes of the stack of backups, which is another."""

    @property
    def is_empty(self) -> bool:
        """Return whether deploy would change nothing."""
        changes = self.plan.change_set or self.plan.changes or self.new_head or self.backup_changes
        return not (changes or self.missing_images or self.new_bundle)

    def text(self) -> str:
        """Return the changes as text for people."""
        lines = [self.plan.note] if self.plan.note else []
        lines += [f"+ image {name} (built first)" for name in self.missing_images]
        lines += [str(change) for change in self.changes]
        lines += [str(self.new_head)] if self.new_head else []
        lines += [f"{change} (backups)" for change in self.backup_changes]
        lines += ["~ head node: the instance stops and starts"] if self.head_restarts else []
        if self.plan.change_set and not self.plan.changes:
            lines.append("~ tags or outputs of the stack")
        if self.new_bundle:
            lines.append("~ head node: new settings or playbooks, applied to the running instance")
        return "\n".join(lines) or "no changes"

    @property
    def changes(self) -> tuple[ResourceChange, ...]:
        """Return the stack's changes, without a head that is replaced."""
        if self.new_head is not None:
            return tuple(item for item in self.plan.changes if item.logical_id not in PARTS)
        if not self.head_restarts:
            return self.plan.changes
        # CloudFormation can't tell; such a change is in place for an instance on EBS.
        return tuple(
            replace(item, may_replace=False) if item.logical_id == HEAD else item
            for item in self.plan.changes
        )

    @property
    def losses(self) -> tuple[str, ...]:
        """Return the existing resources that would, or may, be deleted."""
        plan = replace(self.plan, changes=self.changes)
        head = (HEAD,) if self.new_head is not None and self.new_head.loses_disk else ()
        return (*(change.logical_id for change in plan.destructive_changes), *head)


class Cluster:
    """Deploys one cluster."""

    def __init__(
        self,
        config: ClusterConfig,
        clients: Clients,
        report: Reporter,
        lock: ImageLock | None = None,
    ) -> None:
        """Keep the parts.

        Without a lock file the newest base image is used."""
        self._config = config
        self._lock = lock
        self._clients = clients
        self._report = report
        self._bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))
        self._changes = StackChanges(
            clients,
            names.stack(config),
            tags={tags.CLUSTER: config.cluster},
            store_template=self._store_template,
            named_roles=config.iam.name_prefix is not None,
            protects=True,
        )
        self._head_setup = HeadSetup(clients, config, self._bucket)
        self._backups = BackupStore(config, clients, report)

    def preview(self, *, replace_head: bool = False) -> DeployPreview:
        """Return the changes that deploy would make; changes nothing."""
        base = image_lock.find_base(self._clients.client("ec2"), self._config, self._lock)
        specs = images.required_images(self._config, base)
        images_by_name = images.find(self._clients.client("ec2"), [spec.name for spec in specs])
        ids = {
            spec.kind: images_by_name[spec.name].id if spec.name in images_by_name else NOT_BUILT
            for spec in specs
        }
        template = self._template(base, ids)
        plan = self._changes.preview(template)
        missing_images = tuple(spec.name for spec in specs if spec.name not in images_by_name)
        preview = DeployPreview(
            plan,
            missing_images,
            self._has_new_bundle(plan),
            backup_changes=self._backups.preview(),
        )
        return self._with_head_change(preview, template, replace_head=replace_head)

    def _has_new_bundle(self, plan: StackPlan) -> bool:
        """Return whether the head node would be set up from another bundle."""
        if plan.creates_stack:
            return False
        try:
            return not self._head_setup.is_set_up_from(self._bundle().sha)
        except StackMissing:
            return True  # the bundle names a resource that the update makes

    def deploy(self, *, yes: bool, replace_head: bool = False) -> DeployPreview:
        """Bring the cluster to the state of cluster.yaml, and wait.

        May be repeated. Raises NotConfirmed before anything is lost, unless `yes`.
        """
        base = image_lock.find_base(self._clients.client("ec2"), self._config, self._lock)
        if self._lock is not None and self._lock.pin_for(self._config) is None:
            self._lock.write(self._config, base)
        ids = image_build_stack.ensure_images(self._config, self._clients, base, self._report)
        with self._report.phase("Comparing the stack") as phase:
            template = self._template(base, ids)
            plan = self._changes.plan(template)
            phase.result(f"{len(plan.changes)} changes" if plan.change_set else "no changes")
        preview = self._with_head_change(
            DeployPreview(plan, (), False), template, replace_head=replace_head
        )
        if not plan.creates_stack and not preview.is_empty:
            self._report.line(preview.text())
        if preview.losses and not yes:
            self._changes.discard(plan)
            raise NotConfirmed(
                f"deploy would, or may, remove or replace {', '.join(preview.losses)}",
                next_step="add --yes",
            )
        if preview.new_head is not None:
            self._changes.discard(plan)
            self._replace_head(base, ids)
        else:
            self._execute(plan)
        backup_changes = self._backups.prepare()
        return replace(preview, backup_changes=backup_changes, new_bundle=self.apply())

    def _execute(self, plan: StackPlan) -> None:
        if plan.change_set:
            verb = "Creating" if plan.creates_stack else "Updating"
            with self._report.phase(f"{verb} stack {plan.stack}") as phase:
                self._changes.execute(plan, phase)

    def _replace_head(self, base: images.BaseImage, ids: dict[str, str]) -> None:
        """Update the stack twice, first without the head instance.

        The first update makes all other changes too. If one of them fails, it is undone
        before the instance is gone, and the instance starts again. A deploy that dies in
        between leaves a stack without the instance, and the next deploy adds it.
        """
        with stopped_head(self._clients, self._config, self._report):
            self._execute(self._changes.plan(self._template(base, ids, with_head=False)))
        self._execute(self._changes.plan(self._template(base, ids)))

    def _with_head_change(
        self, preview: DeployPreview, template: str, *, replace_head: bool
    ) -> DeployPreview:
        """Return the preview with what happens to the head instance."""
        before, after = preview.plan.before, resources(template)
        if HEAD not in before:
            return preview
        resource_ids = stack_resources(self._clients, names.stack(self._config))
        replacement = new_head(
            before,
            after,
            preview.plan.changes,
            stack_instance=resource_ids.get(HEAD, ""),
            lives=find_head(self._clients, self._config) is not None,
            requested=replace_head,
        )
        head_restarts = replacement is None and restarts(before, after)
        return replace(preview, new_head=replacement, head_restarts=head_restarts)

    def apply(self, *, force: bool = False) -> bool:
        """Apply the current settings to the head node; return whether it changed."""
        bundle = self._bundle()
        if self._head_setup.is_set_up_from(bundle.sha) and not force:
            return False
        self._bucket.upload(bundle)
        with self._report.phase("Setting up the head node") as phase:
            if force:
                self._head_setup.run_again(bundle.sha, phase)
            else:
                self._head_setup.set_up_from(bundle.sha, phase)
        return True

    def unapplied_files(self) -> tuple[str, ...]:
        """Return the bundle's files that the head node lacks or has outdated.

        They are all files if the head node's bundle is not in the bucket.
        """
        bundle, status = self._bundle(), self._head_setup.status()
        head_bundle = self._bucket.read(names.bundle(status.bundle)) if status is not None else None
        return differing_paths(head_bundle or pack({}).data, bundle.data)

    def _bundle(self) -> Bundle:
        return cluster_bundle(
            bundle_files(
                self._config,
                stack_facts(self._config, self._clients),
                price_table(self._config, self._clients, self._bucket),
                templates=assets.directory("templates"),
            )
        )

    def _template(
        self, base: images.BaseImage, ids: dict[str, str], *, with_head: bool = True
    ) -> str:
        # A running head node keeps its image: the playbook brings it up to date in place.
        # Replacing it would end slurmctld and the accounting database.
        head_instance = find_head(self._clients, self._config)
        facts = TemplateFacts(
            account=self._clients.account,
            head_image=head_instance["ImageId"] if head_instance is not None else ids["head"],
            compute_image=ids["compute"],
            root_device=base.root_device,
            head_price=head_price(self._config),
            with_head=with_head,
        )
        return stack_template(self._config, facts)

    def _store_template(self, body: str) -> str:
        """Store a template too large for a request in the images bucket.

        That bucket exists before the cluster's.
        """
        build_resources = image_build_stack.prepare_stack(self._config, self._clients, self._report)
        key = f"templates/{names.stack(self._config)}.yaml"
        build_resources.bucket.write(key, body.encode())
        endpoint = self._clients.client("s3").meta.endpoint_url
        return f"{endpoint}/{build_resources.bucket.name}/{key}"
