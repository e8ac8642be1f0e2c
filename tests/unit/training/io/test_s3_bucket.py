"""Refusals of S3, for someone who may list some prefixes only."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from toolkit.training.io.s3_bucket import S3Bucket

KEY = "checkpoints/ada/run/x"
LIST = {"Bucket": "b", "Prefix": KEY, "MaxKeys": 1}


@pytest.fixture
def client():
    return boto3.client(
        "s3", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )


def refused(stubber, operation="head_object", code="403"):
    stubber.add_client_error(operation, code, http_status_code=403)


def test_a_refused_object_that_the_list_does_not_have_is_absent(client):
    with Stubber(client) as stubber:
        refused(stubber)
        stubber.add_response("list_objects_v2", {"Contents": [{"Key": f"{KEY}y"}]}, LIST)
        assert S3Bucket("b", client).call("head_object", if_absent="none", Key=KEY) == "none"


@pytest.mark.parametrize("operation", ["head_object", "get_object"])
def test_a_refused_object_that_the_list_has_stays_refused(client, operation):
    with Stubber(client) as stubber:
        refused(stubber, operation, "AccessDenied")
        stubber.add_response("list_objects_v2", {"Contents": [{"Key": KEY}]}, LIST)
        with pytest.raises(ClientError, match="AccessDenied"):
            S3Bucket("b", client).call(operation, if_absent=None, Key=KEY)


def test_an_object_whose_prefix_can_not_be_listed_stays_refused_in_the_first_words(client):
    with Stubber(client) as stubber:
        refused(stubber)
        refused(stubber, "list_objects_v2", "AccessDenied")
        with pytest.raises(ClientError, match=r"403.*HeadObject"):
            S3Bucket("b", client).call("head_object", if_absent=None, Key=KEY)


def test_no_other_refused_call_counts_as_absence(client):
    with Stubber(client) as stubber:
        refused(stubber, "abort_multipart_upload", "AccessDenied")
        with pytest.raises(ClientError, match="AccessDenied"):
            S3Bucket("b", client).abort({"Key": KEY, "UploadId": "1"})
