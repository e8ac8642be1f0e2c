"""Emptying a bucket, with all its old versions and delete markers.

S3 deletes only a bucket in which none of them is left.
"""

import boto3
import pytest
from moto import mock_aws

from toolkit.deploy import storage
from toolkit.deploy.storage import Bucket
from toolkit.errors import DestroyIncomplete

NAME = "bucket"
ENABLED = {"Status": "Enabled"}


@pytest.fixture
def s3(monkeypatch):
    monkeypatch.setattr(storage, "DELETE_AT_ONCE", 3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=NAME)
        client.put_bucket_versioning(Bucket=NAME, VersioningConfiguration=ENABLED)
        yield client


def test_empty_deletes_every_version_and_delete_marker_over_several_pages(s3):
    for number in range(7):
        for content in (b"old", b"new"):
            s3.put_object(Bucket=NAME, Key=f"runs/{number}", Body=content)
    s3.delete_object(Bucket=NAME, Key="runs/0")
    assert Bucket(s3, NAME).empty() == 15
    s3.delete_bucket(Bucket=NAME)  # S3 refuses this for a bucket that is not empty
    assert not Bucket(s3, NAME).exists()


def test_an_object_that_can_not_be_deleted_is_named_and_not_retried(s3, monkeypatch):
    s3.put_object(Bucket=NAME, Key="locked", Body=b"")
    refused = {"Key": "locked", "Code": "AccessDenied", "Message": "Object Lock"}
    monkeypatch.setattr(s3, "delete_objects", lambda **_: {"Errors": [refused]})
    with pytest.raises(DestroyIncomplete, match="s3://bucket/locked: AccessDenied Object Lock"):
        Bucket(s3, NAME).empty()
