"""The cluster whose records a store has: two clusters with one name share no store.

A bucket's name has the AWS account, which alone tells apart two clusters of one name in a region.
Commands that ask AWS know it. For the others the store keeps what AWS said of a profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.usage.errors import OtherCluster

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.usage.cluster_store import ClusterStore

_PROFILES = "profiles"
"""The account of each profile that `usage close` had, as AWS said it."""


def check(store: ClusterStore, region: str, bucket: str = "") -> None:
    """Raise OtherCluster if the store has another cluster's records.

    Without a bucket the regions alone are compared: AWS need not be asked.
    """
    known = store.read_json(_path(store))
    if known is None:
        return
    found = (known.get("region"), known.get("bucket"))
    if found[0] != region or (bucket and found[1] != bucket):
        raise OtherCluster(
            f"{store.folder} has the records of another cluster {store.folder.name!r}: they are"
            f" from the bucket {found[1]} in {found[0]}, and cluster.yaml is of"
            f" {bucket or 'one'} in {region}",
            next_step="give one of the clusters another name, or each its own $TOOLKIT_USAGE_STORE",
        )


def keep(store: ClusterStore, region: str, bucket: str, profile: str, account: str) -> None:
    """Write down whose records the store has, once.

    The account of the profile is kept too, even if the store is another cluster's. Raises
    OtherCluster.
    """
    path = _path(store)
    known = store.read_json(path)
    origin: dict[str, Any] = {"region": region, "bucket": bucket} if known is None else known
    if profile:
        origin = {**origin, _PROFILES: {**origin.get(_PROFILES, {}), profile: account}}
    if origin != known:
        store.folder.mkdir(parents=True, exist_ok=True)
        store.write_json(path, origin)
    check(store, region, bucket)


def account_of(store: ClusterStore, profile: str) -> str:
    """Return a profile's account as AWS said it, if known."""
    return str(_profiles(store).get(profile, ""))


def is_of_other_profiles(store: ClusterStore, profile: str) -> bool:
    """Return whether the store knows profiles, but not this one."""
    known = _profiles(store)
    return bool(known) and profile not in known


def _profiles(store: ClusterStore) -> dict[str, str]:
    known = store.read_json(_path(store)) or {}
    profiles: dict[str, str] = known.get(_PROFILES, {})
    return profiles


def _path(store: ClusterStore) -> Path:
    return store.folder / "origin.json"
