"""S3's daily metric of a bucket's size. moto has one, of its own memory, and of today alone.

Source: Amazon S3 User Guide, "Metrics and dimensions". A day has a value when it is over: the bytes
of all versions that were there at its end. A version that was deleted since is in no day. An empty
bucket has no value.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from moto.cloudwatch.models import Dimension, MetricDatum
from moto.s3.models import FakeKey, S3Backend, s3_backends
from moto.utilities.utils import get_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolkit.local.aws.moto_patches import Patches

SIZE: Final = "BucketSizeBytes"
_DAY: Final = 86_400
_STORAGE_TYPES: Final = {
    "STANDARD": "StandardStorage",
    "STANDARD_IA": "StandardIAStorage",
    "ONEZONE_IA": "OneZoneIAStorage",
    "INTELLIGENT_TIERING": "IntelligentTieringFAStorage",
    "REDUCED_REDUNDANCY": "ReducedRedundancyStorage",
    "GLACIER_IR": "GlacierInstantRetrievalStorage",
    "GLACIER": "GlacierStorage",
    "DEEP_ARCHIVE": "DeepArchiveStorage",
}


def install(patches: Patches, wall: Callable[[], float]) -> None:
    """Put the sizes of past days in place of moto's."""
    original = S3Backend.get_cloudwatch_metrics

    def metrics(_cls: Any, account_id: str, region: str) -> list[MetricDatum]:
        others = [item for item in original(account_id, region) if item.name != SIZE]
        buckets = s3_backends[account_id][get_partition(region)].buckets
        sizes = [item for bucket in list(buckets.values()) for item in _sizes(bucket, wall())]
        return [*others, *sizes]

    def precedes(one: Any, other: Any) -> bool:
        # moto compares a value with a name, and so finds metrics by one order of dimensions only.
        return bool(one.name < other.name)

    patches.replace(S3Backend, "get_cloudwatch_metrics", classmethod(metrics))
    patches.replace(Dimension, "__lt__", precedes)


def _sizes(bucket: Any, now: float) -> Iterator[MetricDatum]:
    """Yield a bucket's size at the end of each past day."""
    versions = [
        (_second(version.last_modified), str(version.storage_class), int(version.size))
        for name in list(bucket.keys)
        for version in bucket.keys.getlist(name, [])
        if isinstance(version, FakeKey)  # not a delete marker
    ]
    first = min((second for second, *_ in versions), default=now)
    for day in range(int(first) // _DAY * _DAY, int(now) // _DAY * _DAY, _DAY):
        bytes_by_class: Counter[str] = Counter()
        for second, storage_class, size in versions:
            if second < day + _DAY:
                bytes_by_class[storage_class] += size
        for storage_class, size in bytes_by_class.items():
            yield MetricDatum(
                namespace="AWS/S3",
                name=SIZE,
                value=size,
                dimensions=[
                    {"Name": "StorageType", "Value": _STORAGE_TYPES[storage_class]},
                    {"Name": "BucketName", "Value": bucket.name},
                ],
                timestamp=datetime.fromtimestamp(day, UTC).replace(tzinfo=None),  # as moto's are
                unit="Bytes",
            )


def _second(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()
