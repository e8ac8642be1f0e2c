"""CloudWatch's sizes of buckets on the local cloud: by day, of all versions, and late."""

from slurmplugins.cloud.metrics import DailyMetric, daily_values
from slurmplugins.system.clock import SystemClock

DAY = 86_400


def sizes(local, bucket, kind="StandardStorage"):
    """Return the sizes of two weeks, by the day's distance from today."""
    metric = DailyMetric(
        "AWS/S3", "BucketSizeBytes", (("BucketName", bucket), ("StorageType", kind)), "Average"
    )
    today = int(local.wall()) // DAY * DAY
    found = daily_values(
        lambda: local.client("cloudwatch"), SystemClock(), [metric], today - 14 * DAY, today + DAY
    )
    return {(item.day - today) // DAY: item.value for item in found}


def test_a_day_has_its_size_when_it_is_over(local):
    s3 = local.client("s3")
    s3.create_bucket(Bucket="demo-sizes")
    s3.put_object(Bucket="demo-sizes", Key="a", Body=b"x" * 1000)
    assert sizes(local, "demo-sizes") == {}
    local.pass_time(2 * DAY)
    assert sizes(local, "demo-sizes") == {-2: 1000.0, -1: 1000.0}


def test_old_versions_count_and_other_classes_are_apart(local):
    s3 = local.client("s3")
    s3.create_bucket(Bucket="demo-versions")
    s3.put_bucket_versioning(Bucket="demo-versions", VersioningConfiguration={"Status": "Enabled"})
    for size in (10, 20):
        s3.put_object(Bucket="demo-versions", Key="a", Body=b"x" * size)
    s3.delete_object(Bucket="demo-versions", Key="a")
    s3.put_object(Bucket="demo-versions", Key="b", Body=b"x" * 5, StorageClass="GLACIER_IR")
    local.pass_time(DAY)
    assert sizes(local, "demo-versions") == {-1: 30.0}
    assert sizes(local, "demo-versions", "GlacierInstantRetrievalStorage") == {-1: 5.0}
    assert sizes(local, "demo-nobody") == {}
