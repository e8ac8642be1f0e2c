"""The kernel's packet filter of each VPC, which holds its security groups: nftables."""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from toolkit.local.machines.firewall import TCP, Firewall, Rule, ruleset
from toolkit.local.machines.host_commands import run_checked

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.local.machines.host_commands import Host

log = logging.getLogger(__name__)

NFT = ("nft", "--file", "-")
_GROUP = "sg-00000000"
# With each kind of statement, so that a kernel that lacks one is found out.
_TRIAL = Firewall(
    {_GROUP: frozenset({IPv4Address("127.0.0.1")})},
    ingress=frozenset({Rule(_GROUP, TCP, (1, 2), peer_group=_GROUP)}),
)


def obstacle(host: Host) -> str | None:
    """Return why this host can't hold security groups, None if it can.

    The trial is in a namespace of its own.
    """
    trial = host.run(["unshare", "--net", "--", *NFT], stdin=ruleset(_TRIAL).encode(), timeout=30)
    if trial.returncode == 0:
        return None
    lines = trial.stderr.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else f"nft ended with {trial.returncode}"


class PacketFilter:
    """The filters of a local cloud's VPCs; without nftables it does nothing."""

    def __init__(self, host: Host) -> None:
        """Change nothing yet."""
        self._host = host
        self._loaded: dict[Path, Firewall] = {}
        self._lock = threading.Lock()

    @cached_property
    def works(self) -> bool:
        """Return whether the host has nftables; the log says so if not."""
        reason = obstacle(self._host)
        if reason is not None:
            log.warning("security groups do not hold: %s", reason)
        return reason is None

    def close(self, namespace: Path) -> None:
        """Let nothing pass in a namespace that is new."""
        with self._lock:
            self._loaded.pop(namespace, None)
        self.load(namespace, Firewall())

    def load(self, namespace: Path, firewall: Firewall) -> None:
        """Put the firewall in force, unless it is already."""
        with self._lock:
            if not self.works or self._loaded.get(namespace) == firewall:
                return
            argv = ["nsenter", f"--net={namespace}", "--", *NFT]
            run_checked(self._host, argv, stdin=ruleset(firewall).encode())
            self._loaded[namespace] = firewall
