"""The cluster whose records a store has: two clusters with one name share no store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.usage.errors import OtherCluster

if TYPE_CHECKING:
    from toolkit.usage.cluster_store import ClusterStore


def check(store: ClusterStore, region: str, bucket: str = "") -> None:
    """Raise OtherCluster if the store has another cluster's records.

    Without a bucket the regions alone are compared: AWS need not be asked.
    """
    known = store.read_json(store.folder / "origin.json")
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


def keep(store: ClusterStore, region: str, bucket: str) -> None:
    """Write down whose records the store has, once. Raises OtherCluster."""
    check(store, region, bucket)
    path = store.folder / "origin.json"
    if not path.exists():
        store.folder.mkdir(parents=True, exist_ok=True)
        store.write_json(path, {"region": region, "bucket": bucket})
