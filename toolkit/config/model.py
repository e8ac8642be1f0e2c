"""What cluster.yaml may say: one frozen model a section.

A model states the shape of its own section. What one section says about another (a pool's zone,
a user's account) is checked in `toolkit.config.checks`, on the raw file, so that a mistake in one
place doesn't hide those elsewhere.
"""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import Field, field_validator

from toolkit.config import types
from toolkit.config.section import Section
from toolkit.config.training import Data, Training
from toolkit.config.types import (
    AccountName,
    ClusterName,
    Label,
    PartitionName,
    PoolName,
    SettingName,
    SettingValue,
    UserName,
    ZoneName,
)

# AWS keeps the first four addresses of a subnet and the last one; .10 is the first round number.
HEAD_HOST_NUMBER = 10
MAX_NODES_PER_POOL = 10_000
NODE_DIGITS = 3


class InstanceRate(Section):
    """How fast the account may start instances, where AWS has raised it: `burst` at once, then
    `per_second`. Not given: the published 1000 and 2.
    """

    burst: Annotated[int, Field(ge=1, le=1_000_000)]
    per_second: Annotated[float, Field(gt=0, le=10_000)]


class Aws(Section):
    """Which AWS, and with whose credentials the CLI (not the machines) talks to it."""

    region: Annotated[str, Field(pattern=types.REGION)]
    endpoint_url: Annotated[str, Field(pattern=types.ENDPOINT)] | None = None
    profile: Label | None = None
    credentials_file: Annotated[str, Field(pattern=types.FILE)] | None = None
    instance_rate: InstanceRate | None = None


class Network(Section):
    """One subnet a zone, the head node in the first; a NAT gateway only where `nat_subnet` is."""

    cidr: IPv4Network
    zones: Annotated[dict[ZoneName, IPv4Network], Field(min_length=1)]
    nat_subnet: IPv4Network | None = None

    @property
    def head_zone(self) -> str:
        """The zone the head node and the shared filesystem are in."""
        return next(iter(self.zones))

    @property
    def head_address(self) -> IPv4Address:
        """The head node's address: fixed, so that compute nodes need no lookup."""
        return self.zones[self.head_zone][HEAD_HOST_NUMBER]


class Slurm(Section):
    """Which Slurm, and how patient it is (seconds). With `profile: local`, 24.11 by default."""

    version: Literal["23.11", "24.05", "24.11", "25.05", "25.11", "26.05"] = "23.11"
    suspend_time: Annotated[int, Field(ge=10, le=86_400)] = 300
    resume_timeout: Annotated[int, Field(ge=60, le=7_200)] = 900
    suspend_timeout: Annotated[int, Field(ge=30, le=3_600)] = 60
    settings: dict[SettingName, SettingValue | int] = Field(default={})


class BaseImage(Section):
    """The newest image of this owner whose name matches is what images are built on."""

    owner: Annotated[str, Field(pattern=types.OWNER)] = "099720109477"
    name: Annotated[str, Field(min_length=3, max_length=128)] = (
        "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"
    )


class Images(Section):
    """How machine images are built; without `subnet` the builder uses the default VPC's."""

    base: BaseImage = BaseImage()
    builder_type: Label = "m7i.large"
    subnet: Annotated[str, Field(pattern=types.SUBNET_ID)] | None = None


class HeadNode(Section):
    """The machine that runs slurmctld, slurmdbd and MLflow."""

    instance_type: Label = "m7i.large"
    root_gib: Annotated[int, Field(ge=8, le=16_384)] = 50


class Shared(Section):
    """The filesystem every machine mounts at /shared."""

    type: Literal["lustre"] = "lustre"
    gib: Annotated[int, Field(ge=1200)] = 1200
    throughput: Literal[125, 250, 500, 1000] = 125

    _blocks = field_validator("gib")(types.whole_blocks)


class Mlflow(Section):
    """The tracking server on the head node."""

    enabled: bool = True


class Shape(Section):
    """What one node of a pool is to Slurm."""

    cpus: Annotated[int, Field(ge=1, le=1024)]
    memory_gib: Annotated[int, Field(ge=1, le=32_768)]
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    gpu: Annotated[str, Field(pattern=types.GPU_KIND)] | None = None


class Offering(Section):
    """One way to have the shape: an instance type, bought as spot, on demand or as a block.

    With `reservation` the machines use that capacity reservation or block, which is in `zone`.
    `zone` without it keeps the offering to one of the pool's zones.
    """

    type: Label
    capacity: Literal["spot", "on-demand", "capacity-block"]
    zone: ZoneName | None = None
    reservation: Annotated[str, Field(pattern=types.RESERVATION)] | None = None


class Pool(Section):
    """Nodes `<pool>-001` to `<pool>-<count>`, tried in the order of `offerings`.

    `type_choice`: among neighbouring offerings that differ in type alone, `ec2` lets EC2 choose
    (one CreateFleet a zone, price-capacity-optimized), `in-order` tries them one by one.
    `max_spot_share` bounds spot's share of what the pool's machines cost an hour; a job that
    would exceed it is started on demand. `placement_group` puts machines of a zone close together.
    `efa`: Elastic Fabric Adapters a machine has, one a network card.
    The first `static` of them always have a machine.
    """

    count: Annotated[int, Field(ge=1, le=MAX_NODES_PER_POOL)]
    static: Annotated[int, Field(ge=0, le=MAX_NODES_PER_POOL)] = 0
    shape: Shape
    offerings: Annotated[tuple[Offering, ...], Field(min_length=1)]
    zones: tuple[ZoneName, ...] = ()
    type_choice: Literal["ec2", "in-order"] = "ec2"
    max_spot_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    placement_group: bool = False
    efa: Annotated[int, Field(ge=0, le=32)] = 0

    @property
    def zonal(self) -> bool:
        """Its launch template differs by zone."""
        return self.placement_group or self.efa > 0


class Partition(Section):
    """A Slurm partition over whole pools.

    `policy` says which offerings its jobs may have, and in which order: as the pools list them,
    spot alone, spot first, on demand only, the cheapest first, or spot alone until the job has
    waited (`on-demand-after 10m`). Where partitions differ in `priority`, jobs of the higher take
    nodes from jobs of the lower, which have `grace_seconds` to save and are requeued.
    """

    pools: Annotated[tuple[PoolName, ...], Field(min_length=1)]
    policy: Annotated[str, Field(pattern=types.POLICY)] = "as-listed"
    default: bool = False
    max_time: Annotated[str, Field(pattern=types.MAX_TIME)] = "infinite"
    priority: Annotated[int, Field(ge=1, le=65_533)] = 1
    grace_seconds: Annotated[int, Field(ge=0, le=3_600)] = 120


class Account(Section):
    """A Slurm account; `users` are members besides those whose default account it is."""

    name: AccountName
    fairshare: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    parent: AccountName = "root"
    users: tuple[UserName, ...] = ()


class User(Section):
    """A person: the same uid on every machine."""

    name: UserName
    uid: Annotated[int, Field(ge=1000, le=60_000)]
    account: AccountName


class Access(Section):
    """How `toolkit login` reaches a shell: argv; {instance_id}, {region}, {cluster} filled in."""

    login: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "aws",
        "ssm",
        "start-session",
        "--region",
        "{region}",
        "--target",
        "{instance_id}",
    )


class ClusterConfig(Section):
    """The whole of cluster.yaml."""

    cluster: ClusterName
    profile: Literal["local", "aws"] = "aws"
    aws: Aws
    network: Network
    slurm: Slurm = Slurm()
    images: Images = Images()
    head: HeadNode = HeadNode()
    shared: Shared = Shared()
    training: Training = Training()
    data: Data = Data()
    mlflow: Mlflow = Mlflow()
    pools: Annotated[dict[PoolName, Pool], Field(min_length=1)]
    partitions: Annotated[dict[PartitionName, Partition], Field(min_length=1)]
    accounts: tuple[Account, ...] = ()
    users: tuple[User, ...] = ()
    access: Access = Access()

    def pool_zones(self, pool: str) -> tuple[str, ...]:
        """The zones a pool may launch in, in order; all of them unless it names its own."""
        return self.pools[pool].zones or tuple(self.network.zones)

    def offering_zones(self, pool: str, offering: Offering) -> tuple[str, ...]:
        """The zones one offering of a pool is tried in."""
        return (offering.zone,) if offering.zone else self.pool_zones(pool)

    def nodes(self, pool: str, count: int | None = None) -> str:
        """The pool's nodes, or its first `count`, as a Slurm hostlist: `gpu-[001-004]`, or
        `gpu-001` when it is one.
        """
        every = self.pools[pool].count
        count = every if count is None else count
        digits = max(NODE_DIGITS, len(str(every)))
        first, last = f"{1:0{digits}}", f"{count:0{digits}}"
        return f"{pool}-{first}" if count == 1 else f"{pool}-[{first}-{last}]"

    def partition_of(self, pool: str) -> str:
        """The first partition that has the pool: the one its instances are tagged with."""
        return next(name for name, part in self.partitions.items() if pool in part.pools)
