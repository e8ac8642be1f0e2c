"""The places in S3 of jobs' data: datasets and checkpoints. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.errors import DeployError

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig


def jobs_use_s3(config: ClusterConfig) -> bool:
    """Return whether jobs keep datasets or checkpoints in S3."""
    return config.data.in_s3 or config.training.checkpoints is not None


def places_in_s3(config: ClusterConfig, bucket: str) -> dict[str, tuple[str, str] | None]:
    """Return the places of jobs' data in S3.

    Raises DeployError for the cluster's own bucket by its name: the bundle lies there too, and root
    runs it on every instance.
    """
    data = _bucket_and_folder(config.data.store_url(bucket=""))
    checkpoints = _bucket_and_folder(config.training.checkpoints_url(bucket=""))
    for key, place in (("data.store", data), ("training.checkpoints", checkpoints)):
        if place is not None and place[0] == bucket:
            raise DeployError(
                f"{key} names {bucket}, which is the cluster's own bucket",
                next_step=f"write {key}: bucket, which keeps jobs' data apart in it",
            )
    return {"data": data, "checkpoints": checkpoints}


def _bucket_and_folder(url: str | None) -> tuple[str, str] | None:
    """Return the bucket ("": the cluster's own) and its folder.

    None for a URL that is not in S3.
    """
    if url is None or not url.startswith("s3://"):
        return None
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return bucket, prefix.strip("/")
