"""The facts that a first boot learns, and the files that it writes for slurmd, under any root."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import tags
from slurmplugins.config import paths
from slurmplugins.config.node import InstanceFacts
from slurmplugins.errors import BootError
from slurmplugins.model import hostlist, json_input, slurm_keys
from slurmplugins.node import key_files, key_follower
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.config.node import NodeConfig
    from slurmplugins.node.imds import Metadata

OWN_LINE_MARK: Final = "# slurm-toolkit"
"""Ends the lines of /etc/hosts that are ours: each boot replaces them."""

_SAFE: Final = re.compile(r"[A-Za-z0-9._:/-]{0,120}", re.ASCII)

DROP_IN: Final = f"""# Written at boot by slurm-node-boot; the values are in the file it names.
[Service]
EnvironmentFile={paths.SLURMD_ENVIRONMENT}
ExecStart=
ExecStart=/usr/sbin/slurmd --systemd $TOOLKIT_BOOT -N ${{TOOLKIT_NODE}} \\
  --conf-server ${{TOOLKIT_CONF_SERVER}} --instance-id ${{TOOLKIT_INSTANCE_ID}} \\
  --instance-type ${{TOOLKIT_INSTANCE_TYPE}} --extra ${{TOOLKIT_EXTRA}}
"""


def identify(metadata: Metadata, settings: NodeConfig) -> InstanceFacts:
    """Read this instance's facts, with its node, from the metadata service.

    Raises BootError if the tags name no node or a value is missing or unsafe. Raises MetadataError
    if the service does not answer.
    """
    tag_values = _tags(metadata)
    index = metadata.get("ami-launch-index") or "0"
    instance_id, instance_type = (
        _require(metadata, "instance-id"),
        _require(metadata, "instance-type"),
    )
    node = tags.node_of(tag_values, int(index) if index.isdecimal() else -1, instance_id)
    if node is None:
        raise BootError(
            f"this instance's tags name no node: {tag_values!r}, launch index {index!r}"
        )
    return InstanceFacts(
        instance_id=instance_id,
        instance_type=instance_type,
        zone=_require(metadata, "placement/availability-zone"),
        lifecycle=_require_safe(metadata.get("instance-life-cycle") or "on-demand"),
        node=node,
        pool=_require_safe(tag_values.get(tags.POOL) or hostlist.pool_of(node)),
        price=_require_safe(tags.price_of(tag_values, instance_type)),
        image_id=_require(metadata, "ami-id"),
        region=settings.region,
        cluster=settings.cluster,
        address=_require(metadata, "local-ipv4"),
        launched_at=_launched_at(metadata),
    )


class NodeFiles:
    """The node's files below `root`. Every write replaces a whole file, and may be repeated."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write_host_name(self, name: str, address: str, settings: NodeConfig) -> None:
        """Write the host name, and entries of the hosts file.

        The entries make this instance and slurmctld's hosts reachable without DNS.
        """
        write_atomically(self._path_below_root(paths.HOSTNAME), f"{name}\n".encode(), mode=0o644)
        path = self._path_below_root(paths.HOSTS)
        old_text = path.read_text(encoding="utf-8") if path.exists() else "127.0.0.1 localhost\n"
        lines = [line for line in old_text.splitlines() if OWN_LINE_MARK not in line]
        hosts = [(name, address), *((host, at) for host, at, _ in settings.slurmctlds)]
        lines += [f"{at} {host} {OWN_LINE_MARK}" for host, at in hosts]
        write_atomically(path, ("\n".join(lines) + "\n").encode(), mode=0o644)

    def write_slurm_key(self, secret: str) -> None:
        """Write the cluster's key, or its keys, as the secret has them.

        Raises BootError for a secret that is no key, or an image without user slurm.
        """
        keys = slurm_keys.parse(secret)
        key_files.write(self._root, keys)
        key_follower.write_loaded(self._path_below_root(paths.LOADED_KEYS), keys.generation)

    def write_facts(self, facts: InstanceFacts) -> None:
        path = self._path_below_root(paths.INSTANCE)
        write_atomically(path, json.dumps(facts.to_json()).encode(), mode=0o644)

    def write_slurmd_unit(self, facts: InstanceFacts, settings: NodeConfig) -> None:
        """Write the drop-in and the environment of slurmd.service.

        With -b, slurmd reports its own start as the boot for which slurmctld waits. Without it, a
        container would report the host's boot time.
        """
        self._write_slurmd_environment(facts, settings, boot="-b")
        write_atomically(self._path_below_root(paths.SLURMD_DROP_IN), DROP_IN.encode(), mode=0o644)

    def clear_boot_flag(self, facts: InstanceFacts, settings: NodeConfig) -> None:
        """Drop -b for later starts of slurmd.

        A restart must not look like a reboot: Slurm would then give up on the jobs.
        """
        self._write_slurmd_environment(facts, settings, boot="")

    def _write_slurmd_environment(
        self, facts: InstanceFacts, settings: NodeConfig, *, boot: str
    ) -> None:
        extra = {"lifecycle": facts.lifecycle, "az": facts.zone, "price": facts.price}
        values = {
            "TOOLKIT_BOOT": boot,
            **self._key_variables(settings),
            "TOOLKIT_NODE": facts.node,
            "TOOLKIT_CONF_SERVER": ",".join(
                f"{address}:{port}" for _, address, port in settings.slurmctlds
            ),
            "TOOLKIT_INSTANCE_ID": facts.instance_id,
            "TOOLKIT_INSTANCE_TYPE": facts.instance_type,
            # Checked to hold no quote and no space by `_require_safe`: single quotes are enough.
            "TOOLKIT_EXTRA": f"'{json.dumps(extra, separators=(',', ':'))}'",
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        write_atomically(self._path_below_root(paths.SLURMD_ENVIRONMENT), text.encode(), mode=0o644)

    def _key_variables(self, settings: NodeConfig) -> dict[str, str]:
        """Return where slurmd finds auth/slurm's key, if it has one.

        Without these, a reloaded slurmd looks for slurm.jwks beside its cached slurm.conf. On the
        node of a join with munge they would make it ask for auth/slurm.
        """
        files = {"SLURM_SACK_KEY": paths.SLURM_KEY, "SLURM_SACK_JWKS": paths.SLURM_JWKS}
        return {
            name: str(path)
            for name, path in files.items()
            if settings.site is None or self._path_below_root(path).exists()
        }

    def _path_below_root(self, path: Path) -> Path:
        target = self._root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _tags(metadata: Metadata) -> dict[str, str]:
    values: dict[str, str] = {}
    for tag_key in (tags.NODE, tags.NODES, tags.ORDER, tags.POOL, tags.PRICE, tags.PRICES):
        for part_key in tags.part_keys(tag_key):
            value = metadata.get(f"tags/instance/{part_key}")
            if value is None:
                break
            values[part_key] = value
    return values


def _require(metadata: Metadata, path: str) -> str:
    value = metadata.get(path)
    if not value:
        raise BootError(f"the metadata service has no {path}")
    return _require_safe(value.strip())


def _require_safe(value: str) -> str:
    """Return the value if it is safe in unit files and commands.

    Raises BootError otherwise.
    """
    if not _SAFE.fullmatch(value):
        raise BootError(f"the metadata service returned an unsafe value: {value[:80]!r}")
    return value


def _launched_at(metadata: Metadata) -> float | None:
    """Return the launch time; None where it is not served.

    Only the identity document has it.
    """
    text = metadata.get("/latest/dynamic/instance-identity/document")
    try:
        pending_time = json_input.loads(text)["pendingTime"] if text else None
        return datetime.fromisoformat(pending_time).timestamp() if pending_time else None
    except (ValueError, KeyError, TypeError):
        return None
