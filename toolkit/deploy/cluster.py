"""Deploys images, stack, bundle and head node, in that order; skips what is up to date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit import assets
from toolkit.deploy import image_build_stack, image_lock, images, login_nodes, names
from toolkit.deploy.backup_store import BackupStore
from toolkit.deploy.bundle import Bundle, cluster_bundle, differing_paths, pack
from toolkit.deploy.changes import StackChanges
from toolkit.deploy.head import find_head
from toolkit.deploy.head_change import HEAD, PARTS, NewHead, new_head, restarts
from toolkit.deploy.head_setup import HeadSetup
from toolkit.deploy.pricing import price_table, renew_snapshot, tag_price
from toolkit.deploy.slurm_change import SlurmChange
from toolkit.deploy.stack import TemplateFacts, stack_template
from toolkit.deploy.stack_outputs import stack_facts, stack_resources
from toolkit.deploy.stack_plan import ResourceChange, StackPlan, resources
from toolkit.deploy.stopped_head import stopped_head
from toolkit.deploy.storage import Bucket
from toolkit.errors import NotConfirmed, SlurmVersionsDiffer, StackMissing
from toolkit.prices import PriceBook
from toolkit.render import bundle_files
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.config import ClusterConfig
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.login_nodes import LoginInstance
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
    slurm: SlurmChange | None = None  # None: no head node runs, or its Slurm is not known
    lost_login_nodes: tuple[LoginInstance, ...] = ()
    backup_changes: tuple[ResourceChange, ...] = ()
    """Changes of the stack of backups, which is another."""

    @property
    def is_empty(self) -> bool:
        """Return whether deploy would change nothing."""
        changes = self.plan.change_set or self.plan.changes or self.new_head or self.backup_changes
        return not (changes or self.lost_login_nodes or self.missing_images or self.new_bundle)

    def text(self) -> str:
        """Return the changes as text for people."""
        lines = [self.plan.note] if self.plan.note else []
        lines += [f"+ image {name} (built first)" for name in self.missing_images]
        lines += [str(change) for change in self.changes]
        lines += [str(self.new_head)] if self.new_head else []
        lines += [f"{change} (backups)" for change in self.backup_changes]
        lines += ["~ head node: the instance stops and starts"] if self.head_restarts else []
        lines += [str(self.slurm)] if self.slurm is not None and str(self.slurm) else []
        lines += [
            f"± {names.login_node(item.name)}  AWS::EC2::Instance  (a new instance:"
            f" {item.instance_id} was terminated)"
            for item in self.lost_login_nodes
        ]
        if self.plan.change_set and not self.plan.changes:
            lines.append("~ tags or outputs of the stack")
        if self.new_bundle:
            lines.append("~ head node: new settings or playbooks, applied to the running instance")
        return "\n".join(lines) or "no changes"

    @property
    def changes(self) -> tuple[ResourceChange, ...]:
        """Return the stack's changes, without instances that are made again."""
        again = {names.login_node(item.name) for item in self.lost_login_nodes}
        again |= PARTS if self.new_head is not None else set()
        changes = tuple(item for item in self.plan.changes if item.logical_id not in again)
        if not self.head_restarts:
            return changes
        # CloudFormation can't tell; such a change is in place for an instance on EBS.
        return tuple(
            replace(item, may_replace=False) if item.logical_id == HEAD else item
            for item in changes
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
        book: PriceBook | None = None,
    ) -> None:
        """Keep the parts.

        Without a lock file the newest base image is used. Without a price book the prices are
        those of the bundled catalogue.
        """
        self._config = config
        self._book = book or PriceBook.bundled(config.aws.region)
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
        source = image_lock.find_input(self._clients.client("ec2"), self._config, self._lock)
        base, specs = source.base, images.required_images(self._config, source)
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
        preview = self._with_instances(preview, template, replace_head=replace_head)
        return self._with_slurm_change(preview, source)

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
        source = image_lock.find_input(self._clients.client("ec2"), self._config, self._lock)
        base = source.base
        if self._lock is not None and self._lock.pin_for(self._config) is None:
            self._lock.write(self._config, base)
        ids = image_build_stack.ensure_images(self._config, self._clients, source, self._report)
        with self._report.phase("Comparing the stack") as phase:
            template = self._template(base, ids)
            plan = self._changes.plan(template)
            phase.result(f"{len(plan.changes)} changes" if plan.change_set else "no changes")
        preview = self._with_instances(
            DeployPreview(plan, (), False), template, replace_head=replace_head
        )
        preview = self._with_slurm_change(preview, source)
        self._check_slurm(preview.slurm, plan)
        if not plan.creates_stack and not preview.is_empty:
            self._report.line(preview.text())
        if preview.losses and not yes:
            self._changes.discard(plan)
            raise NotConfirmed(
                f"deploy would, or may, remove or replace {', '.join(preview.losses)}",
                next_step="add --yes",
            )
        self._update(preview, base, ids)
        backup_changes = self._backups.prepare()
        return replace(preview, backup_changes=backup_changes, new_bundle=self.apply())

    def _update(self, preview: DeployPreview, base: images.BaseImage, ids: dict[str, str]) -> None:
        """Update the stack, twice if an instance is made again."""
        lost = preview.lost_login_nodes
        if preview.new_head is None and not lost:
            self._execute(preview.plan)
            return
        self._changes.discard(preview.plan)
        if preview.new_head is not None:
            self._replace_head(base, ids, lost)
            return
        self._execute(self._changes.plan(self._template(base, ids, without=lost)))
        self._execute(self._changes.plan(self._template(base, ids)))

    def _execute(self, plan: StackPlan) -> None:
        if plan.change_set:
            verb = "Creating" if plan.creates_stack else "Updating"
            with self._report.phase(f"{verb} stack {plan.stack}") as phase:
                self._changes.execute(plan, phase)

    def _replace_head(
        self, base: images.BaseImage, ids: dict[str, str], lost: Sequence[LoginInstance]
    ) -> None:
        """Update the stack twice, first without the head instance.

        The first update makes all other changes too. If one of them fails, it is undone
        before the instance is gone, and the instance starts again. A deploy that dies in
        between leaves a stack without the instance, and the next deploy adds it.
        """
        with stopped_head(self._clients, self._config, self._report):
            between = self._template(base, ids, with_head=False, without=lost)
            self._execute(self._changes.plan(between))
        self._execute(self._changes.plan(self._template(base, ids)))

    def _with_instances(
        self, preview: DeployPreview, template: str, *, replace_head: bool
    ) -> DeployPreview:
        """Return the preview with what happens to head and login instances."""
        before = preview.plan.before
        if HEAD not in before:
            return preview
        after = resources(template)
        resource_ids = stack_resources(self._clients, names.stack(self._config))
        replacement = new_head(
            before,
            after,
            preview.plan.changes,
            stack_instance=resource_ids.get(HEAD, ""),
            lives=find_head(self._clients, self._config) is not None,
            requested=replace_head,
        )
        return replace(
            preview,
            new_head=replacement,
            head_restarts=replacement is None and restarts(before, after),
            lost_login_nodes=login_nodes.lost(
                before, login_nodes.find(self._clients, self._config)
            ),
        )

    def _with_slurm_change(
        self, preview: DeployPreview, source: images.ImageInput
    ) -> DeployPreview:
        """Return the preview with what happens to the versions of Slurm."""
        head_slurm = self._head_slurm()
        if not head_slurm:
            return preview
        change = SlurmChange(
            head_slurm, source.slurm(self._config), replaces_head=preview.new_head is not None
        )
        return replace(preview, slurm=change)

    def _head_slurm(self) -> str:
        """Return the Slurm of the head node's image, "" if not known."""
        instance = find_head(self._clients, self._config)
        if instance is None:
            return ""
        return images.slurm_of(self._clients.client("ec2"), instance["ImageId"])

    def _check_slurm(self, change: SlurmChange | None, plan: StackPlan) -> None:
        if change is not None and change.problem:
            self._changes.discard(plan)
            raise SlurmVersionsDiffer(change.problem, next_step=change.next_step)

    def apply(self, *, force: bool = False) -> bool:
        """Apply the current settings to the head node; return whether it changed."""
        bundle = self._bundle(renews_prices=True)
        if self._head_setup.is_set_up_from(bundle.sha) and not force:
            return False
        self._check_series()
        self._bucket.upload(bundle)
        with self._report.phase("Setting up the head node") as phase:
            if force:
                self._head_setup.run_again(bundle.sha, phase)
            else:
                self._head_setup.set_up_from(bundle.sha, phase)
        return True

    def _check_series(self) -> None:
        """Refuse a slurm.conf of another series than the head node's daemons read."""
        head_slurm, wanted = self._head_slurm(), self._config.slurm.version
        if head_slurm and SlurmVersion.parse(head_slurm) != SlurmVersion.parse(wanted):
            change = SlurmChange(head_slurm, wanted, replaces_head=False)
            raise SlurmVersionsDiffer(change.problem, next_step=change.next_step)

    def unapplied_files(self) -> tuple[str, ...]:
        """Return the bundle's files that the head node lacks or has outdated.

        They are all files if the head node's bundle is not in the bucket.
        """
        bundle, status = self._bundle(), self._head_setup.status()
        head_bundle = self._bucket.read(names.bundle(status.bundle)) if status is not None else None
        return differing_paths(head_bundle or pack({}).data, bundle.data)

    def _bundle(self, *, renews_prices: bool = False) -> Bundle:
        facts = stack_facts(self._config, self._clients)  # without a stack there is no bucket
        if renews_prices:
            renew_snapshot(self._config, self._clients, self._bucket)
        return cluster_bundle(
            bundle_files(
                self._config,
                facts,
                price_table(self._config, self._clients, self._bucket, self._book),
                templates=assets.directory("templates"),
            )
        )

    def _template(
        self,
        base: images.BaseImage,
        ids: dict[str, str],
        *,
        with_head: bool = True,
        without: Sequence[LoginInstance] = (),
    ) -> str:
        # A running head node keeps its image: the playbook brings it up to date in place.
        # Replacing it would end slurmctld and the accounting database.
        head_instance = find_head(self._clients, self._config)
        facts = TemplateFacts(
            account=self._clients.account,
            head_image=head_instance["ImageId"] if head_instance is not None else ids["head"],
            compute_image=ids["compute"],
            root_device=base.root_device,
            head_price=tag_price(self._book, self._config.head.instance_type),
            with_head=with_head,
            # A newer image replaces a login node: it keeps nothing.
            login_image=ids["head"],
            login_price=tag_price(self._book, self._config.login_nodes.instance_type),
            without_login_nodes=frozenset(item.name for item in without),
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
