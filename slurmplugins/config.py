"""burst.json, which `toolkit` renders from cluster.yaml. Collects every problem before raising."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins import names
from slurmplugins.errors import BadName, ConfigError
from slurmplugins.model import Lifecycle, Offering, Pool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurmplugins.names import NodeName

VERSION: Final = 1
MAX_BYTES: Final = 16 * 1024 * 1024
"""No honest burst.json comes near; a larger one is not read."""

_PRICE: Final = re.compile(r"\d{1,6}(\.\d{1,8})?", re.ASCII)
_CLUSTER: Final = re.compile(r"[a-z][a-z0-9-]{0,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BurstConfig:
    """What the runtime knows about the cluster. Times are seconds. `static` nodes always have a
    machine: the first of their pool, as many as the pool says.
    """

    cluster: str
    region: str
    endpoint_url: str | None
    bucket: str
    slurm_bin: str
    resume_timeout: float
    suspend_timeout: float
    orphan_grace: float
    unbacked_grace: float
    pools: Mapping[str, Pool]
    pool_by_node: Mapping[NodeName, str]
    static: frozenset[NodeName] = frozenset()

    def pool_of(self, node: NodeName) -> Pool | None:
        """The pool a node belongs to, or None for a node that is not ours."""
        name = self.pool_by_node.get(node)
        return None if name is None else self.pools[name]


def load(path: Path) -> BurstConfig:
    """Read and check; ConfigError names every problem."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError((f"{path}: can't be read: {error}",)) from error
    if len(text) > MAX_BYTES:
        raise ConfigError((f"{path}: larger than {MAX_BYTES} bytes",))
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError((f"{path}: not JSON: {error}",)) from error
    return parse(data)


def parse(data: object) -> BurstConfig:
    """Turn decoded JSON into a BurstConfig; unknown keys are left alone."""
    reader = _Reader()
    top = reader.table(data, "burst.json")
    if top.get("version") != VERSION:
        reader.problem(f"version: expected {VERSION}, found {top.get('version')!r}")
    cluster = reader.text(top, "cluster")
    if cluster and not _CLUSTER.fullmatch(cluster):
        reader.problem(f"cluster: not a cluster name: {cluster!r}")
    slurm = reader.table(top.get("slurm", {}), "slurm")
    grace = reader.table(top.get("grace_seconds", {}), "grace_seconds")
    endpoint = top.get("endpoint_url")
    if endpoint is not None and not isinstance(endpoint, str):
        reader.problem("endpoint_url: expected a URL or null")
        endpoint = None
    pools = {
        name: reader.pool(name, value)
        for name, value in reader.table(top.get("pools"), "pools").items()
    }
    owner = reader.owners(pools)
    config = BurstConfig(
        cluster=cluster,
        region=reader.text(top, "region"),
        endpoint_url=endpoint,
        bucket=reader.text(top, "bucket"),
        slurm_bin=reader.text(slurm, "bin", default="/usr/bin"),
        resume_timeout=reader.seconds(slurm, "resume_timeout", 600),
        suspend_timeout=reader.seconds(slurm, "suspend_timeout", 60),
        orphan_grace=reader.seconds(grace, "orphan", 90),
        unbacked_grace=reader.seconds(grace, "unbacked", 60),
        pools=pools,
        pool_by_node=owner,
        static=frozenset(reader.static),
    )
    if reader.problems:
        raise ConfigError(tuple(reader.problems))
    return config


class _Reader:
    """Reads fields, remembers what is wrong and goes on."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.static: list[NodeName] = []

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def table(self, value: object, where: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.problem(f"{where}: expected an object, found {type(value).__name__}")
        return {}

    def text(self, table: dict[str, Any], key: str, *, default: str = "", where: str = "") -> str:
        value = table.get(key, default)
        if isinstance(value, str) and value:
            return value
        self.problem(f"{where}{key}: expected text, found {value!r}")
        return default

    def seconds(self, table: dict[str, Any], key: str, default: float) -> float:
        value = table.get(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        self.problem(f"{key}: expected seconds, found {value!r}")
        return default

    def pool(self, name: str, value: object) -> Pool:
        where = f"pools.{name}."
        table = self.table(value, f"pools.{name}")
        subnets = self.table(table.get("subnets", {}), where + "subnets")
        offerings = table.get("offerings", [])
        if not isinstance(offerings, list) or not offerings:
            self.problem(f"{where}offerings: expected at least one")
            offerings = []
        pool = Pool(
            name=name,
            nodes=self.nodes(self.text(table, "nodes", where=where), where + "nodes"),
            partition=self.text(table, "partition", where=where),
            launch_template=self.text(table, "launch_template", where=where),
            subnets={zone: str(subnet) for zone, subnet in subnets.items()},
            offerings=tuple(
                self.offering(item, f"{where}offerings[{index}].")
                for index, item in enumerate(offerings)
            ),
        )
        static = table.get("static", 0)
        if isinstance(static, int) and not isinstance(static, bool) and static >= 0:
            self.static += pool.nodes[:static]
        else:
            self.problem(f"{where}static: expected a number of nodes, found {static!r}")
        for offering in pool.offerings:
            if offering.zone not in pool.subnets:
                self.problem(f"{where}subnets: no subnet in {offering.zone!r}")
        return pool

    def nodes(self, hostlist: str, where: str) -> tuple[NodeName, ...]:
        try:
            return names.expand(hostlist)
        except BadName as error:
            self.problem(f"{where}: {error.message}")
            return ()

    def offering(self, value: object, where: str) -> Offering:
        table = self.table(value, where)
        capacity = self.text(table, "capacity", where=where)
        if capacity not in {item.value for item in Lifecycle}:
            self.problem(f"{where}capacity: expected spot or on-demand, found {capacity!r}")
            capacity = Lifecycle.ON_DEMAND.value
        price = self.text(table, "price", default="0", where=where)
        if not _PRICE.fullmatch(price):
            self.problem(f"{where}price: expected USD an hour, found {price!r}")
        return Offering(
            type=self.text(table, "type", where=where),
            lifecycle=Lifecycle(capacity),
            zone=self.text(table, "zone", where=where),
            price=price,
        )

    def owners(self, pools: Mapping[str, Pool]) -> dict[NodeName, str]:
        owner: dict[NodeName, str] = {}
        for pool in pools.values():
            for node in pool.nodes:
                if node in owner:
                    self.problem(f"pools.{pool.name}.nodes: {node} is in {owner[node]} too")
                owner[node] = pool.name
        return owner
