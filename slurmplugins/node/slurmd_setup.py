"""The facts that a first boot learns, and the files that it writes for slurmd, under any root."""

from __future__ import annotations

import json
import re
import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import tags
from slurmplugins.config import paths
from slurmplugins.config.node import InstanceFacts
from slurmplugins.errors import BootError
from slurmplugins.model import hostlist, json_input
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.config.node import NodeConfig
    from slurmplugins.node.imds import Metadata

SLURMCTLD_PORT: Final = 6817
SHORTEST_KEY: Final = 32

MARK: Final = "# slurm-toolkit"

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
    """Ask the metadata service which node this instance is.

    Raises BootError while the tags name no node, and MetadataError.
    """
    tag = _tags(metadata)
    index = metadata.get("ami-launch-index") or "0"
    instance_id, instance_type = _need(metadata, "instance-id"), _need(metadata, "instance-type")
    node = tags.node_of(tag, int(index) if index.isdecimal() else -1, instance_id)
    if node is None:
        raise BootError(f"the tags of this machine name no node: {tag!r}, launch index {index!r}")
    return InstanceFacts(
        instance_id=instance_id,
        instance_type=instance_type,
        zone=_need(metadata, "placement/availability-zone"),
        lifecycle=_safe(metadata.get("instance-life-cycle") or "on-demand"),
        node=node,
        pool=_safe(tag.get(tags.POOL) or hostlist.pool_of(node)),
        price=_safe(tags.price_of(tag, instance_type)),
        image_id=_need(metadata, "ami-id"),
        region=settings.region,
        cluster=settings.cluster,
        address=_need(metadata, "local-ipv4"),
        launched_at=_launched_at(metadata),
    )


class Files:
    """Writes files below `root`. Every write replaces the whole file or nothing, and may be
    repeated.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def name(self, facts: InstanceFacts, settings: NodeConfig) -> None:
        """Write the host name, and the hosts entries of node and head.

        The entries make both reachable without DNS.
        """
        write_atomically(self._at(paths.HOSTNAME), f"{facts.node}\n".encode(), mode=0o644)
        path = self._at(paths.HOSTS)
        before = path.read_text(encoding="utf-8") if path.exists() else "127.0.0.1 localhost\n"
        kept = [line for line in before.splitlines() if MARK not in line]
        kept += [
            f"{facts.address} {facts.node} {MARK}",
            f"{settings.head_address} {settings.head_name} {MARK}",
        ]
        write_atomically(path, ("\n".join(kept) + "\n").encode(), mode=0o644)

    def slurm_key(self, key: str) -> None:
        """Write the cluster's key, readable by slurm alone.

        No other user can read it even while it is written. Raises BootError for a short key, or an
        image without user slurm.
        """
        if len(key) < SHORTEST_KEY:
            raise BootError(f"the cluster's key is shorter than {SHORTEST_KEY} characters")
        path = self._at(paths.SLURM_KEY)
        write_atomically(path, key.encode(), mode=0o600)
        try:
            shutil.chown(path, "slurm", "slurm")
        except LookupError as error:
            raise BootError("the image has no user slurm") from error

    def facts(self, facts: InstanceFacts) -> None:
        path = self._at(paths.INSTANCE)
        write_atomically(path, json.dumps(facts.to_json()).encode(), mode=0o644)

    def slurmd(self, facts: InstanceFacts, settings: NodeConfig) -> None:
        """Write how systemd starts slurmd.

        This first time it gets -b: its start then counts as the instance's boot, which Slurm waits
        for. In a container the boot time is otherwise the host's.
        """
        self._slurmd_environment(facts, settings, boot="-b")
        write_atomically(self._at(paths.SLURMD_DROP_IN), DROP_IN.encode(), mode=0o644)

    def slurmd_started(self, facts: InstanceFacts, settings: NodeConfig) -> None:
        """Drop -b for later starts of slurmd.

        A restart must not look like a reboot: Slurm would then give up on the jobs.
        """
        self._slurmd_environment(facts, settings, boot="")

    def _slurmd_environment(self, facts: InstanceFacts, settings: NodeConfig, *, boot: str) -> None:
        extra = {"lifecycle": facts.lifecycle, "az": facts.zone, "price": facts.price}
        values = {
            "TOOLKIT_BOOT": boot,
            "TOOLKIT_NODE": facts.node,
            "TOOLKIT_CONF_SERVER": f"{settings.head_address}:{SLURMCTLD_PORT}",
            "TOOLKIT_INSTANCE_ID": facts.instance_id,
            "TOOLKIT_INSTANCE_TYPE": facts.instance_type,
            # Checked to hold no quote and no space by `_safe`: single quotes are enough.
            "TOOLKIT_EXTRA": f"'{json.dumps(extra, separators=(',', ':'))}'",
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        write_atomically(self._at(paths.SLURMD_ENVIRONMENT), text.encode(), mode=0o644)

    def _at(self, path: Path) -> Path:
        below = self._root / path.relative_to("/")
        below.parent.mkdir(parents=True, exist_ok=True)
        return below


def _tags(metadata: Metadata) -> dict[str, str]:
    found: dict[str, str] = {}
    for long in (tags.NODE, tags.NODES, tags.ORDER, tags.POOL, tags.PRICE, tags.PRICES):
        for key in tags.part_keys(long):
            value = metadata.get(f"tags/instance/{key}")
            if value is None:
                break
            found[key] = value
    return found


def _need(metadata: Metadata, path: str) -> str:
    value = metadata.get(path)
    if not value:
        raise BootError(f"the metadata service has no {path}")
    return _safe(value.strip())


def _safe(value: str) -> str:
    """Return the value if it is safe in unit files and commands.

    Raises BootError otherwise.
    """
    if not _SAFE.fullmatch(value):
        raise BootError(f"the metadata service says something odd: {value[:80]!r}")
    return value


def _launched_at(metadata: Metadata) -> float | None:
    """Return the launch time; None where it is not served.

    Only the identity document has it.
    """
    text = metadata.get("/latest/dynamic/instance-identity/document")
    try:
        pending = json_input.loads(text)["pendingTime"] if text else None
        return datetime.fromisoformat(pending).timestamp() if pending else None
    except (ValueError, KeyError, TypeError):
        return None
