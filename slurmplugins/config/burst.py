"""burst.json, which `toolkit` renders from cluster.yaml. One ConfigError names every problem."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import paths
from slurmplugins.errors import BadName, ConfigError
from slurmplugins.model import json_input
from slurmplugins.model.hostlist import expand
from slurmplugins.model.instance import Lifecycle, Offering, Policy, PolicyName, Pool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurmplugins.model.hostlist import NodeName

VERSION: Final = 1
MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above any real burst.json; a larger file is refused."""

ORPHAN_GRACE: Final = 90
"""Seconds that an instance without a node may live: longer than a launch takes to be recorded."""

MISSING_INSTANCE_GRACE: Final = 30
"""Seconds that Slurm may wait for a silent node without an instance.

Longer than EC2's lists lag behind launches that the journal does not know.
"""

CAPACITY_SHARE: Final = 0.5
"""Share of ResumeTimeout for finding capacity; the rest is for booting. A call that is under way at
its end may go on. After ResumeTimeout nothing is launched: Slurm has given up on the nodes then."""

_PRICE: Final = re.compile(r"\d{1,6}(\.\d{1,12})?", re.ASCII)  # a discount has twelve places
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,127}", re.ASCII)
_CLUSTER: Final = re.compile(r"[a-z][a-z0-9-]{0,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BurstConfig:
    """The cluster's configuration on the head. Times are seconds."""

    cluster: str
    region: str
    endpoint_url: str | None
    bucket: str
    """The S3 bucket that holds the ledger of instances."""
    slurm_bin: str
    """The directory of scontrol and squeue."""
    resume_timeout: float
    orphan_grace: float
    """See ORPHAN_GRACE."""
    missing_instance_grace: float
    """See MISSING_INSTANCE_GRACE."""
    pools: Mapping[str, Pool]
    pool_by_node: Mapping[NodeName, str]
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """Launch policies by partition."""
    instance_rate: tuple[float, float] | None = None
    """Instances that this account may launch at once, and per second; None if not configured."""
    static_nodes: frozenset[NodeName] = frozenset()
    """Nodes that always have an instance: the first nodes of each pool, as many as it states."""
    log_group: str | None = None
    """The cluster's log group. None: its logs stay on the machines."""
    heartbeat_namespace: str | None = None
    """The namespace of the head's heartbeat in CloudWatch. None: no alarm waits for it."""
    reads_metrics: bool = False
    """Whether the head reaches CloudWatch, and may ask it for metrics."""
    nat_gateway: str | None = None
    """The id of the cluster's NAT gateway. None: it has none."""
    slurm_cluster: str | None = None
    """ClusterName of slurm.conf, where it is a site's own. None: the cluster's name."""

    def policy_of(self, partition: str) -> Policy:
        """Return the partition's policy; offerings as listed where it states none."""
        return self.policies.get(partition, Policy())

    def pool_of(self, node: NodeName) -> Pool | None:
        """Return the node's pool, or None for a node of no pool."""
        name = self.pool_by_node.get(node)
        return None if name is None else self.pools[name]


def load(path: Path) -> BurstConfig:
    """Read and check the file. Raises ConfigError with every problem."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError((f"{path}: can't be read: {error}",)) from error
    if len(text) > MAX_BYTES:
        raise ConfigError((f"{path}: larger than {MAX_BYTES} bytes",))
    try:
        data = json_input.loads(text)
    except ValueError as error:
        raise ConfigError((f"{path}: not JSON: {error}",)) from error
    return parse(data)


def parse(data: object) -> BurstConfig:
    """Turn decoded JSON into a BurstConfig; ignore unknown keys.

    Raises ConfigError with every problem.
    """
    reader = _Reader()
    document = reader.table(data, "burst.json")
    if document.get("version") != VERSION:
        reader.add_problem(f"version: expected {VERSION}, found {document.get('version')!r}")
    cluster = reader.cluster(document)
    slurm = reader.table(document.get("slurm", {}), "slurm")
    grace = reader.table(document.get("grace_seconds", {}), "grace_seconds")
    endpoint = reader.endpoint(document)
    pools = {
        name: reader.pool(reader.safe_name(name, "pools"), value)
        for name, value in reader.table(document.get("pools"), "pools").items()
    }
    pool_by_node = reader.pool_by_node(pools)
    config = BurstConfig(
        cluster=cluster,
        region=reader.text(document, "region"),
        endpoint_url=endpoint,
        bucket=reader.text(document, "bucket"),
        slurm_bin=reader.text(slurm, "bin", default=paths.SLURM_BIN),
        resume_timeout=reader.seconds(slurm, "resume_timeout", 600),
        orphan_grace=reader.seconds(grace, "orphan", ORPHAN_GRACE),
        missing_instance_grace=reader.seconds(grace, "unbacked", MISSING_INSTANCE_GRACE),
        pools=pools,
        pool_by_node=pool_by_node,
        policies={
            name: reader.policy(name, value)
            for name, value in reader.table(document.get("partitions", {}), "partitions").items()
        },
        instance_rate=reader.rate(document.get("instance_rate")),
        static_nodes=frozenset(reader.static_nodes),
        log_group=reader.optional_text(document, "log_group"),
        heartbeat_namespace=reader.optional_text(document, "heartbeat_namespace"),
        reads_metrics=document.get("reads_metrics") is True,
        nat_gateway=reader.optional_text(document, "nat_gateway"),
        slurm_cluster=reader.optional_text(slurm, "cluster"),
    )
    if reader.problems:
        raise ConfigError(tuple(reader.problems))
    return config


class _Reader:
    """A reader of fields that records each problem and goes on."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.static_nodes: list[NodeName] = []

    def add_problem(self, text: str) -> None:
        self.problems.append(text)

    def table(self, value: object, location: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.add_problem(f"{location}: expected an object, found {type(value).__name__}")
        return {}

    def text(
        self, table: dict[str, Any], key: str, *, default: str = "", location: str = ""
    ) -> str:
        value = table.get(key, default)
        if isinstance(value, str) and value:
            return value
        self.add_problem(f"{location}{key}: expected text, found {value!r}")
        return default

    def optional_text(self, table: dict[str, Any], key: str) -> str | None:
        value = table.get(key)
        if value is None or (isinstance(value, str) and value):
            return value
        self.add_problem(f"{key}: expected text or null, found {value!r}")
        return None

    def cluster(self, document: dict[str, Any]) -> str:
        name = self.text(document, "cluster")
        if name and not _CLUSTER.fullmatch(name):
            self.add_problem(f"cluster: not a cluster name: {name!r}")
        return name

    def endpoint(self, document: dict[str, Any]) -> str | None:
        value = document.get("endpoint_url")
        if value is None or isinstance(value, str):
            return value
        self.add_problem("endpoint_url: expected a URL or null")
        return None

    def seconds(self, table: dict[str, Any], key: str, default: float) -> float:
        value = table.get(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        self.add_problem(f"{key}: expected seconds, found {value!r}")
        return default

    def pool(self, name: str, value: object) -> Pool:
        location = f"pools.{name}."
        table = self.table(value, f"pools.{name}")
        subnets = self.table(table.get("subnets", {}), location + "subnets")
        offerings = table.get("offerings", [])
        if not isinstance(offerings, list) or not offerings:
            self.add_problem(f"{location}offerings: expected at least one")
            offerings = []
        pool = Pool(
            name=name,
            nodes=self.nodes(self.text(table, "nodes", location=location), location + "nodes"),
            partition=self.safe_name(self.text(table, "partition", location=location), location),
            launch_template=self.safe_name(
                self.text(table, "launch_template", location=location), location
            ),
            subnets={
                zone: self.safe_name(subnet, location + "subnets")
                for zone, subnet in subnets.items()
            },
            offerings=tuple(
                self.offering(item, f"{location}offerings[{index}].")
                for index, item in enumerate(offerings)
            ),
            one_by_one=table.get("one_by_one") is True,
            zone_templates={
                zone: self.safe_name(template, location + "zone_templates")
                for zone, template in self.table(
                    table.get("zone_templates", {}), location + "zone_templates"
                ).items()
            },
            max_spot_share=self.share(table, location),
            in_topology=table.get("in_topology") is True,
        )
        self.static_nodes += pool.nodes[
            : self.static_count(table, location, max_count=len(pool.nodes))
        ]
        for offering in pool.offerings:
            if offering.zone not in pool.subnets:
                self.add_problem(f"{location}subnets: no subnet in {offering.zone!r}")
        return pool

    def static_count(self, table: dict[str, Any], location: str, *, max_count: int) -> int:
        value = table.get("static", 0)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= max_count:
            return value
        self.add_problem(f"{location}static: expected 0 to {max_count} nodes, found {value!r}")
        return 0

    def nodes(self, hostlist: str, location: str) -> tuple[NodeName, ...]:
        try:
            return expand(hostlist)
        except BadName as error:
            self.add_problem(f"{location}: {error.message}")
            return ()

    def offering(self, value: object, location: str) -> Offering:
        table = self.table(value, location)
        capacity = self.text(table, "capacity", location=location)
        if capacity not in {item.value for item in Lifecycle}:
            self.add_problem(f"{location}capacity: expected spot or on-demand, found {capacity!r}")
            capacity = Lifecycle.ON_DEMAND.value
        reservation = table.get("reservation", "")
        if reservation:
            reservation = self.safe_name(reservation, location + "reservation")
        price = self.text(table, "price", default="0", location=location)
        if not _PRICE.fullmatch(price):
            self.add_problem(f"{location}price: expected USD an hour, found {price!r}")
            price = "0"
        return Offering(
            type=self.safe_name(self.text(table, "type", location=location), location + "type"),
            lifecycle=Lifecycle(capacity),
            zone=self.safe_name(self.text(table, "zone", location=location), location + "zone"),
            price=price,
            reservation=reservation,
            block=table.get("block") is True,
        )

    def safe_name(self, value: object, location: str) -> str:
        """Return text that is safe in tags, requests and log lines."""
        if isinstance(value, str) and _SAFE_NAME.fullmatch(value):
            return value
        if value != "":  # `text` has reported an empty value
            self.add_problem(f"{location}: not a name: {str(value)[:80]!r}")
        return ""

    def share(self, table: dict[str, Any], location: str) -> float:
        value = table.get("max_spot_share", 1.0)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self.add_problem(f"{location}max_spot_share: expected 0 to 1, found {value!r}")
        return 1.0

    def policy(self, name: str, value: object) -> Policy:
        table = self.table(value, f"partitions.{name}")
        preference = table.get("policy", PolicyName.AS_LISTED.value)
        if preference not in {item.value for item in PolicyName}:
            self.add_problem(f"partitions.{name}.policy: unknown policy {preference!r}")
            preference = PolicyName.AS_LISTED.value
        return Policy(PolicyName(preference), self.seconds(table, "after", 0))

    def rate(self, value: object) -> tuple[float, float] | None:
        """Return the account's own launch rate: instances at once, instances per second."""
        if value is None:
            return None
        table = self.table(value, "instance_rate")
        burst, refill = self.seconds(table, "burst", 0), self.seconds(table, "per_second", 0)
        if burst and refill:
            return burst, refill
        self.add_problem("instance_rate: expected burst and per_second above 0")
        return None

    def pool_by_node(self, pools: Mapping[str, Pool]) -> dict[NodeName, str]:
        pool_by_node: dict[NodeName, str] = {}
        for pool in pools.values():
            for node in pool.nodes:
                if node in pool_by_node:
                    self.add_problem(
                        f"pools.{pool.name}.nodes: {node} is in {pool_by_node[node]} too"
                    )
                pool_by_node[node] = pool.name
        return pool_by_node
