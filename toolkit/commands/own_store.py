"""The store of cluster.yaml's own cluster, and not that of another one with its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.deploy import account_in_files, names
from toolkit.usage import origin
from toolkit.usage.cluster_store import ClusterStore, cluster_folder

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients


def own_store(config: ClusterConfig) -> ClusterStore:
    """Return the cluster's store. Raises OtherCluster.

    AWS is not asked: the account is compared if files here say it, or if AWS once said it.
    """
    store = ClusterStore(cluster_folder(config.cluster))
    profile = key_of_profile(config)
    account = account_in_files.account_in_files(config) or origin.account_of(store, profile)
    bucket = names.backup_bucket(config, account) if account else ""
    origin.check(store, config.aws.region, bucket)
    return store


def check_account(store: ClusterStore, config: ClusterConfig, clients: Clients) -> None:
    """Raise OtherCluster if the store is of another account, which AWS says."""
    origin.check(store, config.aws.region, names.backup_bucket(config, clients.account))


def key_of_profile(config: ClusterConfig) -> str:
    """Return the profile with its place.

    It is empty for keys in the environment."""
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
