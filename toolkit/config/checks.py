"""Checks the sections of cluster.yaml against each other.

The checks read the raw file and ignore values of the wrong shape, which the model
reports. So one run finds both kinds of mistake.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from toolkit.config.backups import backup_checks, filesystem_backup_checks
from toolkit.config.base_image import base_checks
from toolkit.config.budgets import budget_checks
from toolkit.config.burst import burst_checks
from toolkit.config.capacity import capacity_checks
from toolkit.config.classes import class_checks
from toolkit.config.iam import iam_checks
from toolkit.config.monitoring import monitoring_checks
from toolkit.config.price_checks import price_checks
from toolkit.config.raw import items as _items, mapping as _mapping
from toolkit.config.regions import region_checks
from toolkit.config.s3_places import s3_place_checks
from toolkit.config.ssh_keys import key_parts
from toolkit.config.statement_checks import statement_checks
from toolkit.config.suggestions import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.config.raw import Finding, KeyPath

# These have their own key in cluster.yaml; a second setting would win silently.
NO_KEY = "none: the toolkit sets it"
OWNED_SETTINGS = {
    "clustername": "cluster",
    "slurmctldhost": "network",
    "nodename": "pools",
    "partitionname": "partitions",
    "nodeset": "pools",
    "suspendtime": "slurm.suspend_time",
    "suspendtimeout": "slurm.suspend_timeout",
    "resumetimeout": "slurm.resume_timeout",
    "privatedata": "slurm.private_data",
    "resumeprogram": NO_KEY,
    "suspendprogram": NO_KEY,
    "resumefailprogram": NO_KEY,
    "slurmuser": NO_KEY,
    "authtype": NO_KEY,
    "include": "none: cluster.yaml is the whole configuration",
}
# AWS accepts subnets between these sizes.
LARGEST_SUBNET, SMALLEST_SUBNET = 16, 28
OFFERING_KEYS = ("type", "capacity", "zone", "reservation")
LOGIN_FIELDS = ("cluster", "instance_id", "region")
ACCESS_FIELDS = {
    "login": LOGIN_FIELDS,
    "login_as": (*LOGIN_FIELDS, "user"),
    "ssh_proxy": LOGIN_FIELDS,
}


def cross_check(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield every contradiction in the file, as (path, message)."""
    yield from region_checks(raw)
    yield from iam_checks(raw)
    yield from monitoring_checks(raw)
    yield from _network(raw)
    yield from base_checks(raw)
    yield from _settings(raw)
    yield from _pools(raw)
    yield from _partitions(raw)
    yield from capacity_checks(raw)
    yield from burst_checks(raw)
    yield from _accounts_and_users(raw)
    yield from class_checks(raw)
    yield from budget_checks(raw)
    yield from _access(raw)
    yield from s3_place_checks(raw)
    yield from backup_checks(raw)
    yield from filesystem_backup_checks(raw)
    yield from price_checks(raw)
    yield from statement_checks(raw)


def _cidr(text: object) -> IPv4Network | None:
    try:
        return IPv4Network(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _subnets(network: Mapping[str, Any]) -> list[tuple[KeyPath, IPv4Network]]:
    texts: list[tuple[KeyPath, object]] = [
        (("network", "zones", zone), text) for zone, text in _mapping(network, "zones").items()
    ]
    texts.append((("network", "nat_subnet"), network.get("nat_subnet")))
    return [(path, cidr) for path, text in texts if (cidr := _cidr(text)) is not None]


def _network(raw: Mapping[str, Any]) -> Iterator[Finding]:
    network = _mapping(raw, "network")
    network_cidr = _cidr(network.get("cidr"))
    previous: list[tuple[KeyPath, IPv4Network]] = []
    for path, cidr in _subnets(network):
        if network_cidr is not None and not cidr.subnet_of(network_cidr):
            yield path, f"expected a subnet of network.cidr {network_cidr}, found {cidr}"
        if not LARGEST_SUBNET <= cidr.prefixlen <= SMALLEST_SUBNET:
            yield path, f"expected a size from /16 to /28, found /{cidr.prefixlen}"
        for other_path, other_cidr in previous:
            if cidr.overlaps(other_cidr):
                yield path, f"{cidr} overlaps {other_cidr} of {'.'.join(map(str, other_path))}"
        previous.append((path, cidr))
    region = _mapping(raw, "aws").get("region")
    for zone in _mapping(network, "zones"):
        if isinstance(region, str) and not zone.startswith(region):
            yield ("network", "zones", zone), f"expected a zone of aws.region {region}"


def _settings(raw: Mapping[str, Any]) -> Iterator[Finding]:
    spellings: dict[str, str] = {}
    for name in _mapping(_mapping(raw, "slurm"), "settings"):
        path: KeyPath = ("slurm", "settings", name)
        own_key = OWNED_SETTINGS.get(name.lower())
        if own_key is not None:
            yield path, f"can't be set here; its key is {own_key}"
        if name.lower() in spellings:
            yield path, f"set twice: Slurm reads {spellings[name.lower()]} as the same setting"
        spellings[name.lower()] = name


def _pools(raw: Mapping[str, Any]) -> Iterator[Finding]:
    zones = _mapping(_mapping(raw, "network"), "zones")
    used_pools = {
        pool
        for partition in _mapping(raw, "partitions").values()
        for pool in _items(partition, "pools")
        if isinstance(pool, str)
    }
    for name, pool in _mapping(raw, "pools").items():
        path: KeyPath = ("pools", name)
        if name not in used_pools:
            yield path, "no partition has this pool; add it to partitions.<name>.pools"
        for index, zone in enumerate(_items(pool, "zones")):
            if isinstance(zone, str) and zone not in zones:
                yield (*path, "zones", index), f"unknown zone '{zone}'{suggestion(zone, zones)}"
        yield from _repeats((*path, "zones"), _items(pool, "zones"), "zone")
        yield from _shape((*path, "shape"), _mapping(pool, "shape"))
        offerings = [
            " ".join(str(offering[key]) for key in OFFERING_KEYS if key in offering)
            if isinstance(offering, dict)
            else None
            for offering in _items(pool, "offerings")
        ]
        yield from _repeats((*path, "offerings"), offerings, "offering")


def _shape(path: KeyPath, shape: Mapping[str, Any]) -> Iterator[Finding]:
    gpus, gpu = shape.get("gpus", 0), shape.get("gpu")
    if isinstance(gpus, int) and gpus > 0 and gpu is None:
        yield path, "expected gpu: the kind of its GPUs, such as a10g"
    if gpu is not None and gpus == 0:
        yield (*path, "gpu"), "expected gpus: the number of GPUs of a node"
    yield from _processors(path, shape)


def _processors(path: KeyPath, shape: Mapping[str, Any]) -> Iterator[Finding]:
    cpus, sockets = shape.get("cpus"), shape.get("sockets")
    threads = shape.get("threads_per_core", 2)
    if "threads_per_core" in shape and sockets is None:
        yield (*path, "threads_per_core"), "expected sockets: without it, Slurm knows no cores"
    if all(isinstance(value, int) and value > 0 for value in (cpus, sockets, threads)) and (
        cpus % (sockets * threads)
    ):
        text = f"expected cpus to be a multiple of sockets x threads_per_core, {sockets * threads}"
        yield (*path, "sockets"), text


def _partitions(raw: Mapping[str, Any]) -> Iterator[Finding]:
    pools = _mapping(raw, "pools")
    default: str | None = None
    for name, partition in _mapping(raw, "partitions").items():
        path: KeyPath = ("partitions", name)
        for index, pool in enumerate(_items(partition, "pools")):
            if isinstance(pool, str) and pool not in pools:
                yield (*path, "pools", index), f"unknown pool '{pool}'{suggestion(pool, pools)}"
        yield from _repeats((*path, "pools"), _items(partition, "pools"), "pool")
        if isinstance(partition, dict) and partition.get("default") is True:
            if default is not None:
                yield (*path, "default"), f"partition {default} is the default already"
            default = default or name


def _accounts_and_users(raw: Mapping[str, Any]) -> Iterator[Finding]:
    accounts = [account for account in _items(raw, "accounts") if isinstance(account, dict)]
    users = [user for user in _items(raw, "users") if isinstance(user, dict)]
    account_names = {str(account.get("name")) for account in accounts}
    user_names = {str(user.get("name")) for user in users}
    yield from _repeats(("accounts",), [a.get("name") for a in accounts], "account")
    yield from _repeats(("users",), [u.get("name") for u in users], "user")
    yield from _repeats(("users",), [u.get("uid") for u in users], "uid")
    yield from _shared_keys(_items(raw, "users"))
    for index, user in enumerate(users):
        account = user.get("account")
        if isinstance(account, str) and account not in account_names:
            yield (
                ("users", index, "account"),
                f"unknown account '{account}'{suggestion(account, account_names)}",
            )
    for index, account in enumerate(accounts):
        for at, name in enumerate(_items(account, "users")):
            if isinstance(name, str) and name not in user_names:
                user_path = ("accounts", index, "users", at)
                yield user_path, f"unknown user '{name}'{suggestion(name, user_names)}"
    yield from _parents(accounts, account_names)


def _shared_keys(users: Sequence[object]) -> Iterator[Finding]:
    """Yield keys that two users have.

    Such a key would stay when one of them leaves.
    """
    owners: dict[str, str] = {}
    for index, user in enumerate(users):
        if not isinstance(user, dict):
            continue  # the model reports it
        name = str(user.get("name"))
        for at, line in enumerate(_items(user, "ssh_keys")):
            try:
                _, key = key_parts(str(line))
            except ValueError:
                continue  # the model reports it
            if key in owners:
                yield (
                    ("users", index, "ssh_keys", at),
                    f"this key is listed already, for {owners[key]}; a key belongs to one user",
                )
            owners.setdefault(key, name)


def _parents(accounts: Sequence[Mapping[str, Any]], account_names: set[str]) -> Iterator[Finding]:
    parents = {str(a.get("name")): str(a.get("parent", "root")) for a in accounts}
    for index, account in enumerate(accounts):
        name, parent = str(account.get("name")), str(account.get("parent", "root"))
        path: KeyPath = ("accounts", index, "parent")
        if name == "root":
            yield ("accounts", index, "name"), "root is Slurm's own account"
        if parent not in account_names | {"root"}:
            yield path, f"unknown account '{parent}'{suggestion(parent, account_names | {'root'})}"
        ancestors = {name}
        while parent in parents and parent not in ancestors:
            ancestors.add(parent)
            parent = parents[parent]
        if parent == name:
            yield path, f"account {name} is its own ancestor"


def _access(raw: Mapping[str, Any]) -> Iterator[Finding]:
    for key, field_names in ACCESS_FIELDS.items():
        for index, word in enumerate(_items(_mapping(raw, "access"), key)):
            if not isinstance(word, str):
                continue
            try:
                word.format(**dict.fromkeys(field_names, ""))
            except (KeyError, IndexError, ValueError, AttributeError):
                fields = ", ".join(f"{{{field}}}" for field in field_names)
                yield ("access", key, index), f"expected no other placeholder than {fields}"


def _repeats(path: KeyPath, values: Sequence[object], noun: str) -> Iterator[Finding]:
    for index, value in enumerate(values):
        if value is not None and value in values[:index]:
            yield (*path, index), f"{noun} '{value}' is listed twice"
