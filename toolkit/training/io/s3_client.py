"""Where S3 is, for datasets and checkpoints alike. boto3 is loaded when a client is asked for."""

import os
from typing import Any

from toolkit.training.io.cluster_info import site_facts


def s3_client(connections: int) -> Any:
    """Credentials are what boto3 finds; region and endpoint too, else what the cluster says.

    Raises ImportError where this Python has no boto3.
    """
    import boto3
    from botocore.config import Config

    session, site = boto3.Session(), site_facts()
    region = session.region_name or site.get("aws_region")
    # Another endpoint is another cloud: what the environment says of one holds for both.
    told = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    endpoint = told or site.get("aws_endpoint_url")
    config = Config(
        max_pool_connections=connections,
        retries={"mode": "standard", "total_max_attempts": 6},
    )
    return session.client("s3", region_name=region, endpoint_url=endpoint, config=config)
