"""vars.json: what the playbooks are told. Nothing secret; names start with `toolkit_`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolkit.render.context import head_hostname

if TYPE_CHECKING:
    from toolkit.config.model import ClusterConfig, User
    from toolkit.render.stack import StackFacts

HOMES = "/shared/home"

OF_TRAINING = ("xxhash>=4.0",)
"""What toolkit.training needs in every training environment, beside what a cluster asks for."""


def site_vars(config: ClusterConfig, facts: StackFacts) -> str:
    """For site.yml and verify.yml, on the head."""
    return _dump(
        _head_only(config)
        | {
            "toolkit_cluster": config.cluster,
            "toolkit_slurm_version": config.slurm.version,
            "toolkit_region": config.aws.region,
            "toolkit_endpoint_url": config.aws.endpoint_url or "",
            "toolkit_bucket": facts.bucket,
            "toolkit_secret_id": facts.secret_id,
            "toolkit_head_hostname": head_hostname(config),
            "toolkit_head_address": str(config.network.head_address),
            "toolkit_shared_source": facts.shared_source,
            "toolkit_partitions": list(config.partitions),
            "toolkit_site_facts": _site_facts(config, facts.bucket),
            "toolkit_users": [_user(user) for user in config.users],
        }
    )


def image_vars(config: ClusterConfig, kind: str) -> str:
    """For image.yml. Nothing of one cluster alone: clusters with the same needs share an image.

    What an image doesn't hold is left out, because images are named after all that went in: a
    change of the training environment must not rebuild the compute image.
    """
    values: dict[str, Any] = {"image_kind": kind, "toolkit_slurm_version": config.slurm.version}
    if config.profile == "aws":
        values |= {"toolkit_ec2": True} | (_drivers(config) if kind == "compute" else {})
    return _dump(values | (_head_only(config) if kind == "head" else {}))


def _drivers(config: ClusterConfig) -> dict[str, Any]:
    """What machines of these pools have that a kernel doesn't know by itself."""
    pools = config.pools.values()
    return {
        name: True
        for name, needed in (
            ("toolkit_gpus", any(pool.shape.gpus for pool in pools)),
            ("toolkit_efa", any(pool.efa for pool in pools)),
        )
        if needed
    }


def _head_only(config: ClusterConfig) -> dict[str, Any]:
    return {
        "toolkit_mlflow_enabled": config.mlflow.enabled,
        "toolkit_training_python": config.training.python,
        "toolkit_training_requirements": [
            *config.training.requirements,
            *OF_TRAINING,
            *_for_s3(config),
            *_for_gpus(config),
        ],
    }


def _for_s3(config: ClusterConfig) -> list[str]:
    """What training scripts need to read datasets and to copy checkpoints."""
    return ["boto3"] if config.data.in_s3 or config.training.checkpoints else []


def _for_gpus(config: ClusterConfig) -> list[str]:
    """What runs need to record how much of their GPUs they use."""
    real = config.profile == "aws" and any(pool.shape.gpus for pool in config.pools.values())
    return ["nvidia-ml-py"] if real else []


def _site_facts(config: ClusterConfig, bucket: str) -> dict[str, Any]:
    """For training.json, by the names that `toolkit.training` reads: what is not given is left out.

    Region and endpoint are for whoever has a bucket, the cluster's or their own.
    """
    found = {
        "aws_region": config.aws.region,
        "aws_endpoint_url": config.aws.endpoint_url,
        "checkpoints": config.training.checkpoints_url(bucket=bucket),
        "data_store": config.data.store_url(bucket=bucket),
        "data_cache": config.data.cache,
        "data_cache_gib": config.data.cache_gib,
        "interruptions_per_machine_hour": config.training.interruptions_per_machine_hour,
    }
    return {name: value for name, value in found.items() if value is not None}


def _user(user: User) -> dict[str, Any]:
    return {
        "name": user.name,
        "uid": user.uid,
        "gid": user.uid,
        "home": f"{HOMES}/{user.name}",
        "shell": "/bin/bash",
        "groups": [],
    }


def _dump(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"
