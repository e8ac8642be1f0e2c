"""node.json and instance.json, the two configuration files of a compute node.

User data writes node.json. The first boot writes instance.json.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from slurmplugins.config import paths
from slurmplugins.errors import ConfigError
from slurmplugins.model import json_input

SLURMCTLD_PORT: Final = 6817
_KEYS: Final = ("cluster", "region", "secret_id", "bucket")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}", re.ASCII)
_ACCOUNT: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SharedFilesystem:
    """The shared filesystem: its DNS name, the name of the mount and the path."""

    dns: str
    mount_name: str
    path: Path


@dataclass(frozen=True, slots=True)
class SiteAccounts:
    """Accounts of the site that a cloud node of a join belongs to, each with its uid and gid."""

    slurm_user: tuple[str, int, int]
    users: tuple[tuple[str, int, int], ...]


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
    controllers: tuple[tuple[str, str, int], ...] = ()
    """Of a join: name, address and port of each slurmctld, primary first."""
    site: SiteAccounts | None = None
    """Of a join: the node has no shared filesystem, and the path of `shared` is its own folder."""

    @property
    def slurmctlds(self) -> tuple[tuple[str, str, int], ...]:
        """Return name, address and port of each slurmctld."""
        return self.controllers or ((self.head_name, self.head_address, SLURMCTLD_PORT),)


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
    if data.get("site") is not None:
        return _joined(path, fields)
    if isinstance(shared := data.get("shared"), dict):
        fields |= {f"shared.{key}": value for key, value in shared.items()}
    _require_texts(
        path, fields, (*_KEYS, "head_address", "shared.dns", "shared.mount_name", "shared.path")
    )
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


def _joined(path: Path, fields: dict[str, Any]) -> NodeConfig:
    """Return the settings of a join's node. Raises ConfigError."""
    _require_texts(path, fields, _KEYS)
    site = fields["site"] if isinstance(fields["site"], dict) else {}
    try:
        accounts = SiteAccounts(
            _account(site["slurm_user"]), tuple(map(_account, site.get("users") or ()))
        )
        controllers = tuple(map(_controller, site["controllers"]))
        name, address, _ = controllers[0]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ConfigError((f"{path}: site: can't be read: {error}",)) from error
    return NodeConfig(
        cluster=fields["cluster"],
        region=fields["region"],
        endpoint_url=fields.get("endpoint_url") or None,
        head_address=address,
        head_name=name,
        secret_id=fields["secret_id"],
        shared=SharedFilesystem("", "", paths.SHARED),
        bucket=fields["bucket"],
        log_group=str(fields.get("log_group") or "") or None,
        controllers=controllers,
        site=accounts,
    )


def _account(value: Any) -> tuple[str, int, int]:
    name, uid, gid = value
    if not isinstance(name, str) or not _ACCOUNT.fullmatch(name):
        raise ValueError(f"not an account's name: {str(name)[:40]!r}")
    return name, int(uid), int(gid)


def _controller(value: Any) -> tuple[str, str, int]:
    name, address, port = value
    for text in (name, address):
        if not isinstance(text, str) or not _HOST.fullmatch(text):
            raise ValueError(f"not a host: {str(text)[:80]!r}")
    return name, address, int(port)


def _require_texts(path: Path, fields: dict[str, Any], keys: tuple[str, ...]) -> None:
    problems = [
        f"{path}: {key}: expected text, found {fields.get(key)!r}"
        for key in keys
        if not isinstance(fields.get(key), str) or not fields[key]
    ]
    if problems:
        raise ConfigError(tuple(problems))
