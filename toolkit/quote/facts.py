"""Reads what quotes are made of: prices from EC2, and attempts and instances from the records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.accounting import recorded_instances, recorded_prices
from toolkit.accounting.records import Buckets, RecordsInS3
from toolkit.accounting.settings import price_book
from toolkit.deploy import names
from toolkit.prices import PriceBook, SpotHistory, imports

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients

LOOK_BACK = 30 * 86_400
"""Seconds of records that a quote is made from."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Prices, and what happened in some time."""

    book: PriceBook
    attempts: tuple[Attempt, ...]
    instances: tuple[Instance, ...]
    window: tuple[int, int]


def read(config: ClusterConfig, config_file: Path, clients: Clients, now: int) -> Facts:
    """Read the facts of a cluster, without records as well."""
    window = (now - LOOK_BACK, now)
    buckets = _buckets(config, clients)
    records, ec2 = RecordsInS3(buckets), clients.client("ec2")
    attempts = records.attempts(config.cluster, *window).content.attempts
    lives = recorded_instances.read(records, buckets, ec2, config.cluster, window, now=now)
    return Facts(
        book_with(config, config_file, spot_history(config, clients, records, now, now + 1)),
        attempts,
        lives.instances,
        window,
    )


def spot_prices(config: ClusterConfig, clients: Clients, since: int, until: int) -> SpotHistory:
    """Return the spot prices of the cluster's types in a time."""
    return spot_history(config, clients, RecordsInS3(_buckets(config, clients)), since, until)


def _buckets(config: ClusterConfig, clients: Clients) -> Buckets:
    return Buckets(
        clients.client("s3"),
        names.bucket(config, clients.account),
        names.backup_bucket(config, clients.account),
    )


def book_with(config: ClusterConfig, config_file: Path, history: SpotHistory) -> PriceBook:
    """Return the price book of cluster.yaml with a history of spot prices."""
    imported = imports.read(imports.folder(config_file))
    return replace(price_book(config, imported), history=history)


def spot_history(
    config: ClusterConfig, clients: Clients, records: RecordsInS3, since: int, until: int
) -> SpotHistory:
    """Return the cluster's spot prices, of stored days and of EC2."""
    types = {
        offering.type
        for pool in config.pools.values()
        for offering in pool.offerings
        if offering.capacity == "spot"
    }
    history, _ = recorded_prices.read(
        records, clients.client("ec2"), config.aws.region, types, (since, until)
    )
    return history
