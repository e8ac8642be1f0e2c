"""The store of cluster.yaml's own cluster, and not that of another one with its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.bill import record
from toolkit.deploy import account_in_files, names
from toolkit.usage import origin
from toolkit.usage.cluster_store import ClusterStore, cluster_folder
from toolkit.usage.store import FOLDER_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config import ClusterConfig


def own_store(config: ClusterConfig) -> ClusterStore:
    """Return the cluster's store. Raises OtherCluster.

    AWS is not asked: the account is compared if files here say it, or if AWS once said it.
    """
    store = _usage_store(config)
    _check(store, config)
    return store


def own_bills(config: ClusterConfig) -> Path:
    """Return the path of the cluster's record of bills.

    Raises OtherCluster. AWS is not asked.
    """
    folder = record.default_folder()
    _check(bills_store(config, folder), config, record.FOLDER_VARIABLE)
    return record.record_path(folder, config.cluster)


def bills_store(config: ClusterConfig, folder: Path) -> ClusterStore:
    """Return the store that names the owner of a folder of bills."""
    return ClusterStore(cluster_folder(config.cluster, folder))


def check_account(
    store: ClusterStore, config: ClusterConfig, account: str, variable: str = FOLDER_VARIABLE
) -> None:
    """Raise OtherCluster if the store is of another account, which AWS says."""
    bucket = names.backup_bucket(config, account)
    origin.check(store, config.aws.region, bucket, variable=variable)


def keep_bills(config: ClusterConfig, folder: Path, account: str) -> None:
    """Write down whose record of bills a folder has, once."""
    origin.keep(
        bills_store(config, folder),
        config.aws.region,
        names.backup_bucket(config, account),
        key_of_profile(config),
        account,
        variable=record.FOLDER_VARIABLE,
    )


def _check(store: ClusterStore, config: ClusterConfig, variable: str = FOLDER_VARIABLE) -> None:
    profile = key_of_profile(config)
    account = account_in_files.account_in_files(config)
    is_remembered = not account
    if is_remembered:
        stores = (_usage_store(config), store)
        account = next(filter(None, (origin.account_of(item, profile) for item in stores)), "")
    bucket = names.backup_bucket(config, account) if account else ""
    origin.check(
        store,
        config.aws.region,
        bucket,
        variable=variable,
        is_remembered=bool(account) and is_remembered,
    )


def _usage_store(config: ClusterConfig) -> ClusterStore:
    return ClusterStore(cluster_folder(config.cluster))


def key_of_profile(config: ClusterConfig) -> str:
    """Return the profile with its place.

    It is empty for keys in the environment.
    """
    profile = account_in_files.profile_of(config)
    places = (config.aws.endpoint_url, config.aws.credentials_file)
    return " ".join([profile, *filter(None, places)]) if profile else ""


def warn_of_unknown_account(store: ClusterStore, config: ClusterConfig) -> None:
    """Say once a command that the account was not compared."""
    is_known = account_in_files.account_in_files(config)
    if is_known or not origin.is_of_other_profiles(store, key_of_profile(config)):
        return
    context = click.get_current_context(silent=True)
    if context is None or __name__ in context.meta:
        return
    context.meta[__name__] = True
    profile = account_in_files.profile_of(config)
    credentials = f"the profile {profile}" if profile else "the keys in the environment"
    click.echo(
        f"{store.folder}: it is not known whether its records are of the AWS account of"
        f" {credentials}. `toolkit usage close` asks AWS.",
        err=True,
    )
