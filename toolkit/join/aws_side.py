"""The AWS side of a join: compute image, stack without a head, the site's key as a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from toolkit.deploy import image_build_stack, image_lock, images, names
from toolkit.deploy.backup_store import BackupStore
from toolkit.deploy.changes import StackChanges
from toolkit.deploy.cluster import NOT_BUILT
from toolkit.deploy.pricing import price_table, renew_snapshot
from toolkit.deploy.stack import TemplateFacts, stack_template
from toolkit.deploy.stack_outputs import stack_resources
from toolkit.deploy.storage import Bucket
from toolkit.errors import StackMissing
from toolkit.join.errors import JoinConflict
from toolkit.prices import PriceBook
from toolkit.render import StackFacts

if TYPE_CHECKING:
    from slurmplugins.model.site_key import SiteKey
    from toolkit.config import ClusterConfig
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.session import Clients
    from toolkit.deploy.site_node import SiteNode
    from toolkit.deploy.stack_plan import ResourceChange, StackPlan
    from toolkit.output import Reporter
    from toolkit.render.prices import PriceTable

CONTROLLER_ROLE = "HeadRole"
"""Its logical id: the rights are those of a cluster's head."""


class AwsSide:
    """The images, the stack and the secret of one join. Every call may be repeated."""

    def __init__(
        self,
        config: ClusterConfig,
        clients: Clients,
        report: Reporter,
        lock: ImageLock,
        book: PriceBook | None = None,
    ) -> None:
        """Keep the parts.

        Without a price book the prices are the bundled catalogue's.
        """
        self._book = book or PriceBook.bundled(config.aws.region)
        self._config = config
        self._clients = clients
        self._report = report
        self._lock = lock
        self._bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))
        self._records = BackupStore(config, clients, report)
        self._changes = StackChanges(
            clients,
            names.stack(config),
            tags={tags.CLUSTER: config.cluster},
            named_roles=config.iam.name_prefix is not None,
            protects=True,
        )

    def check_network(self) -> None:
        """Raise JoinConflict unless the subnets are what cluster.yaml says of them."""
        network = self._config.network
        found = self._clients.client("ec2").describe_subnets(SubnetIds=[*network.subnets.values()])
        by_id: dict[str, Any] = {item["SubnetId"]: item for item in found["Subnets"]}
        for zone, subnet in network.subnets.items():
            item = by_id[subnet]
            for key, value, wanted in (
                ("VpcId", item["VpcId"], network.vpc),
                ("AvailabilityZone", item["AvailabilityZone"], zone),
                ("CidrBlock", item["CidrBlock"], str(network.zones[zone])),
            ):
                if value != wanted:
                    raise JoinConflict(
                        f"subnet {subnet} has {key} {value}, and cluster.yaml says {wanted}",
                        next_step=f"correct network in cluster.yaml, zone {zone}",
                    )

    @property
    def records_bucket(self) -> str:
        """Return the name of the bucket of records, which outlives the join."""
        return self._records.bucket.name

    def preview(
        self, node: SiteNode
    ) -> tuple[StackPlan, tuple[ResourceChange, ...], tuple[str, ...]]:
        """Return the stack's changes, those of the records' and the missing images.

        It changes nothing.
        """
        ec2 = self._clients.client("ec2")
        source = image_lock.find_input(ec2, self._config, self._lock)
        (spec,) = images.required_images(self._config, source)
        existing = images.find(ec2, [spec.name])
        image = existing[spec.name].id if existing else NOT_BUILT
        template = self._template(source.base, image, node)
        missing = () if existing else (spec.name,)
        return self._changes.preview(template), self._records.preview(), missing

    def apply(self, node: SiteNode) -> None:
        """Build a missing image, and bring the stack to cluster.yaml."""
        ec2 = self._clients.client("ec2")
        source = image_lock.find_input(ec2, self._config, self._lock)
        if self._lock.pin_for(self._config) is None:
            self._lock.write(self._config, source.base)
        ids = image_build_stack.ensure_images(self._config, self._clients, source, self._report)
        plan = self._changes.plan(self._template(source.base, ids["compute"], node))
        if plan.change_set:
            verb = "Creating" if plan.creates_stack else "Updating"
            with self._report.phase(f"{verb} stack {plan.stack}") as phase:
                self._changes.execute(plan, phase)
        self._records.prepare()
        renew_snapshot(self._config, self._clients, self._bucket)

    def set_key(self, key: SiteKey) -> bool:
        """Bring the secret to the site's key; return whether it changed."""
        secrets, wanted = self._clients.client("secretsmanager"), key.secret()
        name = names.secret(self._config)
        if secrets.get_secret_value(SecretId=name)["SecretString"] == wanted:
            return False
        secrets.put_secret_value(SecretId=name, SecretString=wanted)
        return True

    def prices(self) -> PriceTable:
        """Return the prices that rank the nodes."""
        return price_table(self._config, self._clients, self._bucket, self._book)

    def facts(self, slurm_cluster: str, governor_folder: str) -> StackFacts:
        """Return the renderer's facts of the stack."""
        return StackFacts(
            bucket=self._bucket.name,
            secret_id=names.secret(self._config),
            subnets=self._config.network.subnets,
            shared_dns="",
            shared_mount="",
            head_volume="",
            backup_bucket="",
            log_group=names.log_group(self._config) if self._config.logs.enabled else "",
            slurm_cluster=slurm_cluster,
            governor_folder=governor_folder,
        )

    def controller_role(self) -> str:
        """Return the ARN of the role that controllers act in. Raises StackMissing."""
        resource_ids = stack_resources(self._clients, names.stack(self._config))
        if CONTROLLER_ROLE not in resource_ids:
            raise StackMissing(
                f"stack {names.stack(self._config)} has no {CONTROLLER_ROLE}",
                next_step="run `toolkit join apply` to complete the stack",
            )
        path = self._config.iam.path.removeprefix("/")
        return self._clients.role_arn(f"{path}{resource_ids[CONTROLLER_ROLE]}")

    def _template(self, base: images.BaseImage, image: str, node: SiteNode) -> str:
        facts = TemplateFacts(
            account=self._clients.account,
            head_image="",
            compute_image=image,
            root_device=base.root_device,
            with_head=False,
            site=node,
        )
        return stack_template(self._config, facts)
