"""Make the S3 client that datasets and checkpoints share.

boto3 is imported when the first client is made.
"""

import os
from typing import Any

from toolkit.training.io.cluster_info import site_facts


def s3_client(connections: int) -> Any:
    """Return an S3 client for so many parallel connections.

    boto3 finds the credentials. It finds region and endpoint too; without them the cluster's are
    used. Raises ImportError when this Python has no boto3.
    """
    import boto3
    from botocore.config import Config

    from toolkit.training.io.sendable_credentials import require_sendable

    session, site = boto3.Session(), site_facts()
    region = session.region_name or site.get("aws_region")
    # Another endpoint is another cloud: the environment's holds for datasets and checkpoints both.
    environment_endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get(
        "AWS_ENDPOINT_URL"
    )
    endpoint = environment_endpoint or site.get("aws_endpoint_url")
    config = Config(
        max_pool_connections=connections,
        retries={"mode": "standard", "total_max_attempts": 6},
    )
    client = session.client("s3", region_name=region, endpoint_url=endpoint, config=config)
    require_sendable(client)
    return client
