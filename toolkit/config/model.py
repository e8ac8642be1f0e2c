"""The model of cluster.yaml: a frozen class for each section.

A class states the shape of its own section. Relations between sections (a pool's zone,
a user's account) are checked in `toolkit.config.checks`, on the raw file. Therefore a
mistake in one place doesn't hide those elsewhere.
"""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import Field, field_validator

from toolkit.config import types
from toolkit.config.backups import Backups
from toolkit.config.budgets import BudgetSection
from toolkit.config.burst import BurstSection
from toolkit.config.classes import ClassName, WorkloadClass
from toolkit.config.cost_policy import CostPolicySection
from toolkit.config.hardware import IMAGE_GIB
from toolkit.config.iam import Iam
from toolkit.config.limits import AccountLimits, UserLimits
from toolkit.config.money import Discount, UsdTotal
from toolkit.config.monitoring import Alarms, Logs
from toolkit.config.prices import Prices
from toolkit.config.section import Section
from toolkit.config.site import Site
from toolkit.config.ssh_keys import SshKey
from toolkit.config.statements import Grant, LedgerAccount, Statements
from toolkit.config.targets import Targets
from toolkit.config.training import Data, Training
from toolkit.config.types import (
    AccountName,
    ClusterName,
    Label,
    PartitionName,
    PoolName,
    PrivateData,
    SettingName,
    SettingValue,
    UserName,
    ZoneName,
)

# AWS keeps the first four addresses of a subnet and the last one; .10 is the first round number.
HEAD_HOST_NUMBER = 10
MAX_NODES_PER_POOL = 10_000
NODE_DIGITS = 3
LOGIN_NODE = "login"


class InstanceRate(Section):
    """The account's rate limit of instance starts, if AWS has raised it.

    Without it, the published 1000 and 2 hold.
    """

    burst: Annotated[int, Field(ge=1, le=1_000_000)]
    """Instances that may start at once."""
    per_second: Annotated[float, Field(gt=0, le=10_000)]
    """Instances that may start each second after the burst."""


class Aws(Section):
    """The AWS region, and the CLI's credentials; instances don't use them."""

    region: Annotated[str, Field(pattern=types.REGION)]
    endpoint_url: Annotated[str, Field(pattern=types.ENDPOINT)] | None = None
    profile: Label | None = None
    """A profile of the AWS CLI's files. It has nothing to do with the cluster's `profile`."""
    credentials_file: Annotated[str, Field(pattern=types.FILE)] | None = None
    instance_rate: InstanceRate | None = None


class Network(Section):
    """The subnets, one for each zone. The head node is in the first."""

    cidr: IPv4Network
    zones: Annotated[dict[ZoneName, IPv4Network], Field(min_length=1)]
    nat_subnet: IPv4Network | None = None
    """A NAT gateway exists only with it."""
    vpc: Annotated[str, Field(pattern=types.VPC_ID)] | None = None
    """The site's VPC, of a join."""
    subnets: dict[ZoneName, Annotated[str, Field(pattern=types.SUBNET_ID)]] = Field(default={})
    """The site's subnets by zone, of a join."""

    @property
    def head_zone(self) -> str:
        """Return the zone of the head node and the shared filesystem."""
        return next(iter(self.zones))

    @property
    def head_address(self) -> IPv4Address:
        """Return the head node's address.

        It is fixed, so that compute nodes need no lookup.
        """
        return self.zones[self.head_zone][HEAD_HOST_NUMBER]


class Slurm(Section):
    """The version of Slurm, its timeouts in seconds, and raw settings."""

    version: Literal["23.11", "24.05", "24.11", "25.05", "25.11", "26.05"] = "23.11"
    """With `profile: local`, 24.11 by default."""
    packages: Literal["system", "locked"] = "system"
    """`locked`: the packages that the lock file names (`toolkit image packages add`)."""
    suspend_time: Annotated[int, Field(ge=10, le=86_400)] = 300
    resume_timeout: Annotated[int, Field(ge=60, le=7_200)] = 900
    suspend_timeout: Annotated[int, Field(ge=30, le=3_600)] = 60
    topology: Literal["ec2", "flat"] = "ec2"
    """`ec2`: from Slurm 25.11 on, jobs get nodes that are close to each other in EC2's network, in
    partitions with a placement group or EFA. `flat`: Slurm takes all nodes as equally close.
    """
    private_data: tuple[PrivateData, ...] = ()
    """What users see of their own alone, in slurm.conf and slurmdbd.conf. By default
    everybody sees the queue, the nodes and the usage of all.
    """
    billing: Literal["first-offering", "bought"] = "first-offering"
    """Whose price the billing weights of partitions have, and so fair share: that of each pool's
    first offering, or that at which its instances were bought lately.
    """
    submit_line: bool = True
    """sbatch, salloc and srun print what the job would cost, by Slurm's cli_filter/lua."""
    settings: dict[SettingName, SettingValue | int] = Field(default={})


class BaseImage(Section):
    """The images to build on: the newest image of this owner whose name matches."""

    owner: Annotated[str, Field(pattern=types.OWNER)] = "099720109477"
    name: Annotated[str, Field(min_length=3, max_length=128)] = (
        "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"
    )
    system: Annotated[str, Field(pattern=types.SYSTEM)] | None = None
    """Its system, where the name does not say it: ID and VERSION_ID of /etc/os-release."""


class Images(Section):
    """The settings of image builds."""

    base: BaseImage = BaseImage()
    builder_type: Label = "m7i.large"
    subnet: Annotated[str, Field(pattern=types.SUBNET_ID)] | None = None
    """The builder's subnet; without it, one of the default VPC's."""
    package_store: Annotated[str, Field(pattern=types.PACKAGE_STORE)] | None = None
    """The place of Slurm's packages: `s3://bucket/prefix`, or an https:// folder that somebody else
    fills. Without it, the bucket of image builds.
    """


class HeadNode(Section):
    """The instance that runs slurmctld, slurmdbd and MLflow."""

    instance_type: Label = "m7i.large"
    root_gib: Annotated[int, Field(ge=IMAGE_GIB, le=16_384)] = 50
    data_gib: Annotated[int, Field(ge=8, le=16_384)] = 50
    """The volume of Slurm's state and the databases, which outlives the instance."""
    data_snapshot: Annotated[str, Field(pattern=types.SNAPSHOT_ID)] | None = None
    """The snapshot that this volume was made of; without it, an empty volume."""


class LoginNodes(Section):
    """The instances where users log in. Without any, they log in on the head node."""

    count: Annotated[int, Field(ge=0, le=9)] = 0
    instance_type: Label = "m7i.large"
    root_gib: Annotated[int, Field(ge=IMAGE_GIB, le=16_384)] = 50
    max_user_share: Annotated[float, Field(ge=0.05, le=1)] = 0.5
    """The largest share of an instance's CPUs and memory that one user may take."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the login nodes, `login-1` and so on."""
        return tuple(f"{LOGIN_NODE}-{number}" for number in range(1, self.count + 1))


class Shared(Section):
    """The filesystem that every instance mounts at /shared."""

    type: Literal["lustre"] = "lustre"
    gib: Annotated[int, Field(ge=1200)] = 1200
    throughput: Literal[125, 250, 500, 1000] = 125
    """MB/s for each TiB of the filesystem."""

    backup_days: Annotated[int, Field(ge=0, le=90)] = 7
    """How many days FSx keeps its daily backup of it. 0: it makes none."""
    backup_time: Annotated[str, Field(pattern=types.TIME_OF_DAY)] = "03:00"
    """When that backup begins, in UTC."""
    final_backup: bool = False
    """Whether `toolkit destroy` makes a backup of it first, which stays."""
    from_backup: Annotated[str, Field(pattern=types.BACKUP_ID)] | None = None
    """The FSx backup that it was made of; without it, an empty filesystem."""

    _blocks = field_validator("gib")(types.whole_blocks)


class Mlflow(Section):
    """The tracking server on the head node."""

    enabled: bool = True


class Shape(Section):
    """The resources of one node of a pool, as Slurm sees them."""

    cpus: Annotated[int, Field(ge=1, le=1024)]
    memory_gib: Annotated[int, Field(ge=1, le=32_768)]
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    gpu: Annotated[str, Field(pattern=types.GPU_KIND)] | None = None
    """The kind of its GPUs, such as a10g."""
    sockets: Annotated[int, Field(ge=1, le=16)] | None = None
    """Its processors. With them Slurm gives a job whole cores, beside its GPUs."""
    threads_per_core: Literal[1, 2] = 2
    """vCPUs of a core; it counts only with `sockets`."""


class OfferingSection(Section):
    """A way to buy the shape: an instance type as spot, on demand or a capacity block."""

    type: Label
    capacity: Literal["spot", "on-demand", "capacity-block"]
    zone: ZoneName | None = None
    """The zone of the reservation; without one, it limits the offering to this zone."""
    reservation: Annotated[str, Field(pattern=types.RESERVATION)] | None = None
    """A capacity reservation or block in `zone`, for the instances to use."""


class PoolSection(Section):
    """The nodes `<pool>-001` to `<pool>-<count>`."""

    count: Annotated[int, Field(ge=1, le=MAX_NODES_PER_POOL)]
    static: Annotated[int, Field(ge=0, le=MAX_NODES_PER_POOL)] = 0
    """The first `static` nodes always have an instance."""
    shape: Shape
    offerings: Annotated[tuple[OfferingSection, ...], Field(min_length=1)]
    """Tried in this order."""
    zones: tuple[ZoneName, ...] = ()
    type_choice: Literal["ec2", "in-order"] = "ec2"
    """For neighbouring offerings that differ in type alone. `ec2`: EC2 chooses (one
    CreateFleet per zone, price-capacity-optimized). `in-order`: tried one by one.
    """
    max_spot_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The largest share of spot in the hourly cost of the pool's instances. A job that
    would exceed it is started on demand.
    """
    placement_group: bool = False
    """Puts the instances of a zone close together."""
    efa: Annotated[int, Field(ge=0, le=32)] = 0
    """Elastic Fabric Adapters of an instance, one for each network card."""

    @property
    def zonal(self) -> bool:
        """Return whether its launch template differs by zone."""
        return self.placement_group or self.efa > 0


class Partition(Section):
    """A Slurm partition over whole pools."""

    pools: Annotated[tuple[PoolName, ...], Field(min_length=1)]
    policy: Annotated[str, Field(pattern=types.POLICY)] = "as-listed"
    """The offerings that its jobs may use, and their order: as listed, spot only, spot
    first, on demand only, or the cheapest first. `on-demand-after 10m`: spot only until
    the job has waited that long.
    """
    default: bool = False
    max_time: Annotated[str, Field(pattern=types.MAX_TIME)] = "infinite"
    priority: Annotated[int, Field(ge=1, le=65_533)] = 1
    """Jobs of a higher priority preempt jobs of a lower one, which are requeued."""
    grace_seconds: Annotated[int, Field(ge=0, le=3_600)] = 120
    """The time of a preempted job to save."""


class Account(Section):
    """A Slurm account."""

    name: AccountName
    fairshare: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    parent: AccountName = "root"
    users: tuple[UserName, ...] = ()
    """Members besides the users whose default account it is."""
    owner: Annotated[str, Field(pattern=types.EMAIL)] | None = None
    """The address of the person who answers for its cost, and gets its statements."""
    cost_centre: LedgerAccount | None = None
    """The cost centre that the accounting journal debits; without one, the account's name."""
    project: Label | None = None
    """The project of its jobs that name none by `sbatch --wckey`."""
    grant: Grant | None = None
    discount_percent: Discount | None = None
    """Its discount; without one, that of `statements`."""
    subsidy_usd: UsdTotal | None = None
    """What is taken off each month's due, at most."""
    limits: AccountLimits = AccountLimits()


class User(Section):
    """A person, with the same uid on every instance."""

    name: UserName
    uid: Annotated[int, Field(ge=1000, le=60_000)]
    account: AccountName
    fairshare: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """The user's share of each of her accounts; without one, 1, or what an admin set."""
    limits: UserLimits = UserLimits()
    ssh_keys: tuple[SshKey, ...] = ()
    """The public keys that open an SSH session as this user, on the head or a login node."""


_START_SESSION = (
    *("aws", "ssm", "start-session"),
    *("--region", "{region}", "--target", "{instance_id}"),
)


class Access(Section):
    """The settings of `toolkit login`."""

    login: Annotated[tuple[str, ...], Field(min_length=1)] = _START_SESSION
    """The argv that opens a shell; {instance_id}, {region} and {cluster} are filled in."""
    login_as: Annotated[tuple[str, ...], Field(min_length=1)] = (
        *_START_SESSION,
        *("--document-name", "toolkit-{cluster}-login", "--parameters", "user={user}"),
    )
    """The argv that opens a shell as one of `users`; {user} is filled in too."""
    ssh_proxy: Annotated[tuple[str, ...], Field(min_length=1)] = (
        *_START_SESSION,
        *("--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=%p"),
    )
    """The argv that joins ssh with the instance's sshd, for ProxyCommand; ssh fills in %p."""


class ClusterConfig(Section):
    """The whole of cluster.yaml."""

    kind: Literal["cluster", "join"] = "cluster"
    """`join`: cloud nodes in a Slurm that a site runs (docs/join.md)."""
    cluster: ClusterName
    profile: Literal["local", "aws"] = "aws"
    """What the instances are: `aws`, EC2's, or `local`, containers without cgroups and GPUs."""
    aws: Aws
    iam: Iam = Iam()
    network: Network
    site: Site | None = None
    slurm: Slurm = Slurm()
    images: Images = Images()
    head: HeadNode = HeadNode()
    login_nodes: LoginNodes = LoginNodes()
    shared: Shared = Shared()
    backups: Backups = Backups()
    training: Training = Training()
    data: Data = Data()
    mlflow: Mlflow = Mlflow()
    logs: Logs = Logs()
    alarms: Alarms = Alarms()
    pools: Annotated[dict[PoolName, PoolSection], Field(min_length=1)]
    partitions: Annotated[dict[PartitionName, Partition], Field(min_length=1)]
    burst: dict[Label, BurstSection] = Field(default={})
    """Waiting jobs of racks that may go to the cloud, by the partition of racks."""
    accounts: tuple[Account, ...] = ()
    classes: dict[ClassName, WorkloadClass] = Field(default={})
    """Workload classes: QOS that `sbatch --qos=NAME` chooses."""
    budgets: dict[AccountName, BudgetSection] = Field(default={})
    """Account budgets by their names: what an account may cost, and what happens then."""
    users: tuple[User, ...] = ()
    access: Access = Access()
    prices: Prices = Prices()
    cost_policy: CostPolicySection = CostPolicySection()
    statements: Statements = Statements()
    targets: Targets = Targets()

    @property
    def joined_site(self) -> Site:
        """Return the site of a join.

        Raises ValueError for a cluster of one's own.
        """
        if self.site is None:
            raise ValueError(f"{self.cluster} is no join")
        return self.site

    def pool_zones(self, pool: str) -> tuple[str, ...]:
        """Return the pool's zones in order, by default all of them."""
        return self.pools[pool].zones or tuple(self.network.zones)

    def offering_zones(self, pool: str, offering: OfferingSection) -> tuple[str, ...]:
        """Return the zones in which an offering of a pool is tried."""
        return (offering.zone,) if offering.zone else self.pool_zones(pool)

    def nodes(self, pool: str, count: int | None = None) -> str:
        """Return the pool's nodes, or its first `count`, as a hostlist.

        For example `gpu-[001-004]`, or `gpu-001` for a single node.
        """
        pool_count = self.pools[pool].count
        count = pool_count if count is None else count
        digits = max(NODE_DIGITS, len(str(pool_count)))
        first, last = f"{1:0{digits}}", f"{count:0{digits}}"
        return f"{pool}-{first}" if count == 1 else f"{pool}-[{first}-{last}]"

    def partition_of(self, pool: str) -> str:
        """Return the first partition with the pool.

        The pool's instances are tagged with it.
        """
        return next(name for name, part in self.partitions.items() if pool in part.pools)
