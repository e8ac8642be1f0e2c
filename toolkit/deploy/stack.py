"""The cluster's CloudFormation template: a pure function of the configuration and some facts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from slurmplugins.cloud.metrics import HEARTBEAT
from slurmplugins.model import backup, records
from slurmplugins.model.instance import ROLE_HEAD, ROLE_LOGIN
from toolkit.deploy import head_volume, names, user_data
from toolkit.deploy.ingress import STORAGE_GROUP, ingress_rules, site_ingress_rules
from toolkit.deploy.job_places import jobs_use_s3, places_in_s3
from toolkit.deploy.network_cards import NetworkInterface, network_interfaces
from toolkit.deploy.templates import render
from toolkit.render.burst import launch_template
from toolkit.render.topology import has_topology

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.ingress import IngressRule
    from toolkit.deploy.site_node import SiteNode

# The AWS services that instances without internet access need, beside S3.
ENDPOINT_SERVICES = ("ec2", "secretsmanager", "ssm", "ssmmessages")


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """The template's input that is not in cluster.yaml."""

    account: str
    head_image: str
    compute_image: str
    root_device: str
    head_price: str = ""  # US dollars an hour; empty: not known
    with_head: bool = True  # False: the stack between two head instances
    login_image: str = ""
    login_price: str = ""
    without_login_nodes: frozenset[str] = frozenset()  # between two instances of each
    site: SiteNode | None = None  # of a join


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """A launch template."""

    name: str
    id: str  # logical id
    pool: str
    subnet: str = ""  # with it, the network interfaces are part of the launch template
    subnet_id: str = ""  # of a site's own subnet; "": the stack makes it
    placement_group: bool = False
    interfaces: tuple[NetworkInterface, ...] = ()


def stack_template(config: ClusterConfig, facts: TemplateFacts) -> str:
    """Return the stack's template as YAML.

    The same input gives the same bytes. Raises DeployError if a user data script is too
    long, or if jobs' data would lie among the cluster's own objects.
    """
    bucket = names.bucket(config, facts.account)
    logins = [name for name in config.login_nodes.names if name not in facts.without_login_nodes]
    return render(
        "stack.yaml.j2",
        {
            "cluster": config.cluster,
            "region": config.aws.region,
            "site": config.site,
            "secret_id": names.secret(config),
            "login_document": names.login_document(config),
            "read_document": names.read_document(config),
            **_network(config),
            **_roles(config),
            **_buckets(config, bucket, facts.account),
            **_monitoring(config),
            "mlflow": config.mlflow.enabled,
            "shared": config.shared,
            "storage_needs": _storage_dependencies(config),
            **_head(config, facts),
            "login": config.login_nodes,
            "login_nodes": {names.login_node(name): name for name in logins},
            "login_image": facts.login_image,
            "login_tags": _login_tags(facts),
            **_compute(config, facts),
            "scripts": user_data.stack_scripts(config, bucket, logins, facts.site),
        },
    )


def _network(config: ClusterConfig) -> dict[str, Any]:
    return {
        "vpc_id": config.network.vpc,
        "vpc_cidr": config.network.cidr,
        "zones": _zones(config),
        "nat_cidr": config.network.nat_subnet,
        "endpoint_services": [
            {"id": names.logical_id(service), "name": service}
            for service in _endpoint_services(config)
        ],
        "ingress": _ingress(config),
    }


def _roles(config: ClusterConfig) -> dict[str, Any]:
    kinds = ("head", "mlflow", "compute", "jobs", ROLE_LOGIN)
    return {
        "iam": config.iam,
        "role_names": {kind: names.role(config, kind) for kind in kinds},
        "reads_metrics": head_reads_metrics(config),
    }


def _buckets(config: ClusterConfig, bucket: str, account: str) -> dict[str, Any]:
    return {
        "bucket": bucket,
        "backup_bucket": names.backup_bucket(config, account),
        "record_prefixes": records.WRITTEN_BY_HEAD,
        "records_status": records.STATUS,
        "backup_prefix": backup.PREFIX,
        "restore_prefix": backup.RESTORE_PREFIX,
        "tls_only": tls_only(config),
        **places_in_s3(config, bucket),
    }


def _monitoring(config: ClusterConfig) -> dict[str, Any]:
    silent, impaired = (names.alarm(config, subject) for subject in names.ALARMS)
    return {
        "logs": config.logs,
        "log_group": names.log_group(config),
        "alarms": config.alarms,
        "alarm_names": {"silent": silent, "impaired": impaired},
        "heartbeat": {"namespace": names.heartbeat_namespace(config), "metric": HEARTBEAT},
    }


def _head(config: ClusterConfig, facts: TemplateFacts) -> dict[str, Any]:
    return {
        "head": config.head,
        "head_volume": head_volume.logical_id(config),
        "head_volume_device": head_volume.DEVICE,
        "head_volume_role": head_volume.ROLE,
        "with_head": facts.with_head and config.site is None,
        "head_address": config.network.head_address,
        "head_image": facts.head_image,
        "head_needs": _head_dependencies(config, _zones(config)[0]["subnet"]),
        "head_tags": _head_tags(facts),
    }


def _compute(config: ClusterConfig, facts: TemplateFacts) -> dict[str, Any]:
    return {
        "compute_image": facts.compute_image,
        "root_device": facts.root_device,
        "instance_types": _instance_types(config),
        "templates": _launch_templates(config),
        "topology": has_topology(config),
        "fabric": any(pool.efa for pool in config.pools.values()),
        "reservations": _reservations(config),
    }


def _reservations(config: ClusterConfig) -> list[str]:
    offerings = (offering for pool in config.pools.values() for offering in pool.offerings)
    return sorted({offering.reservation for offering in offerings if offering.reservation})


def _instance_types(config: ClusterConfig) -> list[str]:
    return sorted({item.type for pool in config.pools.values() for item in pool.offerings})


def images_template(config: ClusterConfig, account: str) -> str:
    """Return the template of the image builds' stack."""
    context = {
        "bucket": names.images_bucket(config, account),
        "tls_only": tls_only(config),
        "iam": config.iam,
        "role_name": names.builder_role(config),
    }
    return render("images.yaml.j2", context)


def tls_only(config: ClusterConfig) -> bool:
    """Return whether buckets refuse plain HTTP.

    They don't if the endpoint has only HTTP.
    """
    return not (config.aws.endpoint_url or "").startswith("http://")


def subnet_logical_id(zone: str) -> str:
    """Return the logical id of a zone's subnet."""
    return f"Subnet{names.logical_id(zone)}"


def pool_logical_id(pool: str) -> str:
    """Return the logical id of a pool's launch template.

    It depends on the name alone. If it moved when another pool is added, CloudFormation
    would create a second template of the same name. The hash keeps `a-b` and `ab`
    apart.
    """
    return f"Pool{names.logical_id(pool)}{hashlib.sha256(pool.encode()).hexdigest()[:6]}"


def _launch_templates(config: ClusterConfig) -> list[LaunchTemplate]:
    """Return a launch template for each pool, or for each zone.

    There is one for each zone if it holds the instances' placement or network.
    """
    launch_templates: list[LaunchTemplate] = []
    for name, pool in config.pools.items():
        if not pool.zonal:
            launch_templates.append(
                LaunchTemplate(launch_template(config.cluster, name), pool_logical_id(name), name)
            )
            continue
        launch_templates.extend(
            LaunchTemplate(
                name=launch_template(config.cluster, name, zone),
                id=f"{pool_logical_id(name)}{names.logical_id(zone)}",
                pool=name,
                subnet=subnet_logical_id(zone),
                subnet_id=config.network.subnets.get(zone, ""),
                placement_group=pool.placement_group,
                interfaces=network_interfaces(pool),
            )
            for zone in config.pool_zones(name)
        )
    return launch_templates


def _zones(config: ClusterConfig) -> list[dict[str, str]]:
    return [
        {
            "name": zone,
            "subnet": subnet_logical_id(zone),
            "id": config.network.subnets.get(zone, ""),
            "cidr": str(cidr),
        }
        for zone, cidr in config.network.zones.items()
    ]


def _ingress(config: ClusterConfig) -> tuple[IngressRule, ...]:
    if config.site is not None:
        return site_ingress_rules(config.site.networks)
    return ingress_rules(login_nodes=config.login_nodes.count > 0)


def _storage_dependencies(config: ClusterConfig) -> list[str]:
    """Return the resources that must exist before the shared filesystem.

    Its interfaces take any free address of the subnet, so the head node's comes first.
    FSx refuses a security group that doesn't let its own members use Lustre's ports
    (https://docs.aws.amazon.com/fsx/latest/LustreGuide/cannot-create-fs.html).
    """
    rules = [rule.id for rule in _ingress(config) if STORAGE_GROUP in (rule.to, rule.source)]
    return ["HeadInterface", *rules]


def _head_dependencies(config: ClusterConfig, subnet: str) -> list[str]:
    """Return the resources that must exist before the head node boots.

    Its first boot would wait for them in vain.
    """
    services = _endpoint_services(config)
    endpoints = [f"{names.logical_id(service)}Endpoint" for service in services]
    routes = ["WayOut"] if config.network.nat_subnet else endpoints
    return [f"{subnet}Routes", "S3Endpoint", "SharedFilesystem", *routes]


def _endpoint_services(config: ClusterConfig) -> tuple[str, ...]:
    """Return the services that instances reach without a NAT gateway.

    STS is one of them where nodes get credentials for jobs, or the head for MLflow.
    """
    needs = {
        "sts": jobs_use_s3(config) or config.mlflow.enabled,
        "logs": config.logs.enabled,
        "monitoring": config.alarms.enabled,
    }
    return (*ENDPOINT_SERVICES, *(service for service, is_needed in needs.items() if is_needed))


def head_reads_metrics(config: ClusterConfig) -> bool:
    """Return whether the head reaches CloudWatch, and may ask it.

    It does for alarms, or through a NAT gateway. An interface endpoint costs more than the sizes of
    buckets are worth.
    """
    return config.alarms.enabled or config.network.nat_subnet is not None


def _head_tags(facts: TemplateFacts) -> dict[str, str]:
    head_tags = {tags.ROLE: ROLE_HEAD, tags.POOL: ROLE_HEAD}
    return {**head_tags, tags.PRICE: facts.head_price} if facts.head_price else head_tags


def _login_tags(facts: TemplateFacts) -> dict[str, str]:
    login_tags = {tags.ROLE: ROLE_LOGIN, tags.POOL: ROLE_LOGIN}
    return {**login_tags, tags.PRICE: facts.login_price} if facts.login_price else login_tags
