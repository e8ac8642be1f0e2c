"""The sections of cluster.yaml on a site whose Slurm gets cloud nodes: `kind: join`."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from toolkit.config import types
from toolkit.config.raw import Finding, mapping
from toolkit.config.section import Section
from toolkit.config.types import Label, UserName

JOIN = "join"
# A cluster of one's own has them; a site has its own of each.
OWN_SECTIONS = (
    "head",
    "login_nodes",
    "shared",
    "backups",
    "training",
    "data",
    "mlflow",
    "alarms",
    "accounts",
    "classes",
    "budgets",
    "users",
    "access",
)
JOIN_DEFAULTS = {
    "backups": {"enabled": False},
    "mlflow": {"enabled": False},
    "alarms": {"enabled": False},
}
IMAGE_KEYS = ("python", "requirements")
"""Of `training`: what the image of a join may have, with site.jobscripts."""
JOIN_SLURM_KEYS = ("settings", "private_data", "submit_line", "billing", "topology")
Argument = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class RolesAnywhere(Section):
    """IAM Roles Anywhere: the controller proves itself by a certificate of the site's."""

    trust_anchor: Annotated[str, Field(pattern=types.TRUST_ANCHOR)]
    profile: Annotated[str, Field(pattern=types.ANYWHERE_PROFILE)]
    certificate: Annotated[str, Field(pattern=types.FOLDER)]
    private_key: Annotated[str, Field(pattern=types.FOLDER)]
    helper: Annotated[str, Field(pattern=types.PROGRAM)] = "/usr/local/bin/aws_signing_helper"


class SiteCredentials(Section):
    """Credentials of a controller, by which it acts in the role that the stack makes."""

    principal: Annotated[str, Field(pattern=types.PRINCIPAL)] | None = None
    """The user or role whose credentials the controller has; it may assume the stack's role."""
    profile: Label | None = None
    """The profile with them, in the files that the AWS SDK of SlurmUser reads."""
    credentials_file: Annotated[str, Field(pattern=types.FOLDER)] | None = None
    """Another file with this profile."""
    roles_anywhere: RolesAnywhere | None = None


class SiteUser(Section):
    """A user of the site, with the same uid and gid on cloud nodes."""

    name: UserName
    uid: Annotated[int, Field(ge=1000, lt=2**31)]
    gid: Annotated[int, Field(ge=1000, lt=2**31)] | None = None
    """Without it, the uid."""


class Site(Section):
    """The site: its controllers, how to reach them, and what may talk to cloud nodes."""

    controllers: Annotated[tuple[Label, ...], Field(min_length=1)]
    """The hosts of SlurmctldHost, as `ssh` takes them."""
    ssh: tuple[Argument, ...] = ("ssh", "-o", "BatchMode=yes", "root@{host}")
    """The argv before a command; {host} is a controller. Empty: this computer is the controller."""
    networks: Annotated[tuple[IPv4Network, ...], Field(min_length=1)]
    """The networks of controllers, racks and submit hosts: they reach the cloud nodes."""
    slurm_conf: Annotated[str, Field(pattern=types.FOLDER)] = "/etc/slurm/slurm.conf"
    slurm_bin: Annotated[str, Field(pattern=types.FOLDER)] = "/usr/bin"
    slurm_user: UserName = "slurm"
    """SlurmUser of slurm.conf, whom our programs run as."""
    python: Annotated[str, Field(pattern=types.PROGRAM)] = "/usr/bin/python3"
    """Python 3.11 or later with boto3, on the controllers."""
    include: Literal["add", "by-hand"] = "add"
    """Whether `toolkit join apply` adds the one line to slurm.conf, or a person does."""
    jobscripts: bool = False
    """The nodes' image has the toolkit's job scripts with their Python environment in /shared."""
    users: tuple[SiteUser, ...] = ()
    """Users whose accounts the nodes get. Without any, the image must know the site's."""
    aws: SiteCredentials = SiteCredentials()


def with_join_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file, of a join without the sections of a cluster."""
    return {**raw, **JOIN_DEFAULTS} if raw.get("kind") == JOIN else dict(raw)


def join_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what a join lacks, and what it can't have.

    It is asked of the file as it was written, before any default.
    """
    network, site = mapping(raw, "network"), mapping(raw, "site")
    if raw.get("kind") != JOIN:
        yield from _of_joins_alone(raw, network)
        return
    if "site" not in raw:
        yield (), "expected site: where the site's controllers are"
    yield from _of_clusters_alone(raw)
    yield from _network(network)
    yield from _credentials(mapping(site, "aws"))


def _of_joins_alone(raw: Mapping[str, Any], network: Mapping[str, Any]) -> Iterator[Finding]:
    if "site" in raw:
        yield ("site",), "only for kind: join"
    for key in ("vpc", "subnets"):
        if key in network:
            yield ("network", key), "only for kind: join"


def _of_clusters_alone(raw: Mapping[str, Any]) -> Iterator[Finding]:
    has_jobscripts = mapping(raw, "site").get("jobscripts") is True
    for section in OWN_SECTIONS:
        if section in raw and not (section == "training" and has_jobscripts):
            yield (section,), "not with kind: join; the site has its own"
    for key in mapping(raw, "training") if has_jobscripts else ():
        if key not in IMAGE_KEYS:
            yield ("training", key), "not with kind: join; a job's own settings say it"
    for key in JOIN_SLURM_KEYS:
        if key in mapping(raw, "slurm"):
            yield ("slurm", key), "not with kind: join; the site's slurm.conf says it"
    for name, partition in mapping(raw, "partitions").items():
        if isinstance(partition, dict) and partition.get("default") is True:
            yield ("partitions", name, "default"), "the site's default partition stays the default"


def _network(network: Mapping[str, Any]) -> Iterator[Finding]:
    if "vpc" not in network:
        yield ("network",), "expected vpc: the id of the site's VPC"
    if "nat_subnet" in network:
        yield ("network", "nat_subnet"), "not with kind: join; the VPC's routes are the site's"
    zones, subnets = mapping(network, "zones"), mapping(network, "subnets")
    for zone in zones:
        if zone not in subnets:
            yield ("network", "zones", zone), f"expected network.subnets.{zone}: its subnet's id"
    for zone in subnets:
        if zone not in zones:
            yield ("network", "subnets", zone), f"expected network.zones.{zone}: its addresses"


def _credentials(aws: Mapping[str, Any]) -> Iterator[Finding]:
    path = ("site", "aws")
    if "roles_anywhere" in aws:
        for key in ("principal", "profile", "credentials_file"):
            if key in aws:
                yield (*path, key), "not beside roles_anywhere"
    elif "principal" not in aws:
        yield path, "expected principal, or roles_anywhere: who may act on the controller"
    if "credentials_file" in aws and "profile" not in aws:
        yield (*path, "credentials_file"), "expected profile: which one of the file"
