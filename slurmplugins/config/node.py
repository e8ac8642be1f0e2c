"""node.json and instance.json, the two configuration files of a compute node.

User data writes node.json. The first boot writes instance.json.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurmplugins.config import paths
from slurmplugins.errors import ConfigError
from slurmplugins.model import json_input


@dataclass(frozen=True, slots=True)
class SharedFilesystem:
    """The shared filesystem: its DNS name, the name of the mount and the path."""

    dns: str
    mount_name: str
    path: Path


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The contents of node.json. It holds no secret: `secret_id` only names one."""

    cluster: str
    region: str
    endpoint_url: str | None
    head_address: str
    head_name: str
    secret_id: str
    shared: SharedFilesystem
    bucket: str
    job_role: str | None = None
    """ARN of the role of jobs. None: the cluster keeps nothing of its jobs in S3."""
    log_group: str | None = None
    """The cluster's log group. None: its logs stay on the machines."""


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """The instance that this compute node is.

    The file at paths.INSTANCE has the same field names, and every user may read it.
    """

    instance_id: str
    instance_type: str
    zone: str
    lifecycle: str
    node: str
    pool: str
    price: str
    image_id: str
    region: str
    cluster: str
    address: str
    launched_at: float | None
    """None where the metadata service does not tell it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def load(path: Path = paths.NODE) -> NodeConfig:
    """Read node.json. Raises ConfigError with every missing field."""
    try:
        data = json_input.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError((f"{path}: can't be read: {error}",)) from error
    if not isinstance(data, dict):
        raise ConfigError((f"{path}: expected an object",))
    fields = dict(data)
    if isinstance(shared := data.get("shared"), dict):
        fields |= {f"shared.{key}": value for key, value in shared.items()}
    required_keys = (
        "cluster", "region", "head_address", "secret_id", "bucket",
        "shared.dns", "shared.mount_name", "shared.path",
    )  # fmt: skip
    problems = [
        f"{path}: {key}: expected text, found {fields.get(key)!r}"
        for key in required_keys
        if not isinstance(fields.get(key), str) or not fields[key]
    ]
    if problems:
        raise ConfigError(tuple(problems))
    return NodeConfig(
        cluster=fields["cluster"],
        region=fields["region"],
        endpoint_url=fields.get("endpoint_url") or None,
        head_address=fields["head_address"],
        head_name=str(fields.get("head_name") or "head"),
        secret_id=fields["secret_id"],
        shared=SharedFilesystem(
            fields["shared.dns"], fields["shared.mount_name"], Path(fields["shared.path"])
        ),
        bucket=fields["bucket"],
        job_role=str(fields.get("job_role") or "") or None,
        log_group=str(fields.get("log_group") or "") or None,
    )
