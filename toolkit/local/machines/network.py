"""Networks of the local cloud: a namespace with a router for each VPC, a namespace a machine.

Nothing of it is in the host's own network: `ip link` on the host never changes. All names begin
with the state directory's name, so several local clouds share a host.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.local.machines.errors import MachineError
from toolkit.local.machines.host_commands import run_checked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.local.machines.driver import MachineSpec
    from toolkit.local.machines.firewall import Firewall
    from toolkit.local.machines.host_commands import Host
    from toolkit.local.machines.packet_filter import PacketFilter

NETNS_ROOT = Path("/run/netns")
# Whether the mount that `ip netns` makes is ours to remove; one for all local clouds of a boot.
MOUNT_MARK = Path("/run/toolkit-local.netns-mounted")
METADATA_ADDRESS = "169.254.169.254/32"
# Behind the first place, which is the one that rules of the machine take.
_LOCAL_PREFERENCE = "1"
_PORT_DIGITS = 14  # an interface name has 15 characters at most
# Routers are shared. So is the mount that the first `ip netns add` of a boot makes, not atomically,
# and with other local clouds' processes: there a lock on a file, beside the mark, does the same.
_THREAD_LOCK = threading.RLock()


@dataclass(frozen=True, slots=True)
class Network:
    """The namespaces of one local cloud."""

    name: str
    host: Host
    packet_filter: PacketFilter
    mark: Path = MOUNT_MARK
    netns_root: Path = NETNS_ROOT
    mountinfo: Path = field(default=Path("/proc/self/mountinfo"))

    def namespace(self, instance_id: str) -> Path:
        """Return the path of the machine's namespace, whether it exists or not."""
        return self.netns_root / f"{self.name}-{instance_id}"

    def connect(self, spec: MachineSpec) -> Path:
        """Give the machine its namespace, joined to its VPC; again is fine."""
        if spec.address is None:
            raise MachineError(f"{spec.instance_id} is in the host's network")
        vpc = f"{self.name}-{spec.vpc_id}"
        with _THREAD_LOCK:
            self._ensure_router(vpc)
        path = self.namespace(spec.instance_id)
        if not self._has_eth0(path.name):
            self._add_namespace(path.name)
            self._join(vpc, path.name, spec)
        self._route(vpc, spec)
        self._set_addresses(path.name, spec)
        return path

    def disconnect(self, instance_id: str) -> None:
        """Remove the machine's namespace and with it its end of the cable."""
        path = self.namespace(instance_id)
        if path.exists():
            # The cable first: a process still inside keeps a namespace alive past its name.
            self.host.run(["ip", "-n", path.name, "link", "del", "eth0"])
            run_checked(self.host, ["ip", "netns", "del", path.name])

    def set_firewall(self, vpc_id: str, firewall: Firewall) -> None:
        """Put a VPC's firewall in force; a VPC without machines needs none."""
        namespace = self.netns_root / f"{self.name}-{vpc_id}"
        if namespace.exists():
            self.packet_filter.load(namespace, firewall)

    def namespaces(self) -> tuple[str, ...]:
        """Return every namespace of this local cloud, VPCs included."""
        try:
            entries = sorted(entry.name for entry in self.netns_root.iterdir())
        except FileNotFoundError:
            return ()
        return tuple(name for name in entries if name.startswith(f"{self.name}-"))

    def instances(self) -> tuple[str, ...]:
        """Return the ids of the machines that have a namespace."""
        prefix = f"{self.name}-"
        names = (name.removeprefix(prefix) for name in self.namespaces())
        return tuple(name for name in names if name.startswith("i-"))

    def remove_all(self) -> None:
        """Remove every namespace, and `ip netns`'s mount if it is ours."""
        with self._host_lock():
            for name in self.namespaces():
                run_checked(self.host, ["ip", "netns", "del", name])
            foreign_namespaces = self.netns_root.is_dir() and any(self.netns_root.iterdir())
            if not self.mark.exists() or foreign_namespaces:
                return
            if self._is_mounted():
                run_checked(self.host, ["umount", str(self.netns_root)])
            with contextlib.suppress(OSError):
                self.netns_root.rmdir()
            self.mark.unlink(missing_ok=True)

    def _ensure_router(self, vpc: str) -> None:
        """Make the VPC's namespace, in which nothing passes until groups permit it."""
        if not (self.netns_root / vpc).exists():
            self._add_namespace(vpc)
            self.packet_filter.close(self.netns_root / vpc)

    def _join(self, vpc: str, name: str, spec: MachineSpec) -> None:
        port = _port(spec)
        self.host.run(["ip", "-n", vpc, "link", "del", port])  # of a start that was cut off
        peer = ("peer", "name", "eth0", "address", spec.mac, "netns", name)
        self._ip(vpc, "link", "add", port, "type", "veth", *peer)

    def _route(self, vpc: str, spec: MachineSpec) -> None:
        """Let the router lead to the machine.

        It answers each machine's ARP for all others, as a VPC does. It has the first address of
        the subnet, for routes through it. It drops a packet from an address that is not the
        sender's own (rp_filter), as EC2's source check does.
        """
        port, interface = _port(spec), spec.address
        if interface is None:
            return
        address, gateway = str(interface.ip), interface.network.network_address + 1
        self._ip(vpc, "link", "set", "lo", "up")
        self._ip(vpc, "addr", "replace", f"{gateway}/32", "dev", "lo")
        self._sysctl(
            vpc,
            "net.ipv4.ip_forward=1",
            f"net.ipv4.conf.{port}.rp_filter=1",
            f"net.ipv4.conf.{port}.proxy_arp=1",
            f"net.ipv4.neigh.{port}.proxy_delay=0",
        )
        self._ip(vpc, "link", "set", port, "addrgenmode", "none", "up")
        self._ip(vpc, "neigh", "replace", address, "lladdr", spec.mac, "dev", port)
        self._ip(vpc, "route", "replace", f"{address}/32", "dev", port)

    def _set_addresses(self, name: str, spec: MachineSpec) -> None:
        self._ip(name, "link", "set", "lo", "up")
        self._ip(name, "addr", "replace", METADATA_ADDRESS, "dev", "lo", "scope", "host")
        self._put_rules_before_local_addresses(name)
        self._ip(name, "addr", "replace", str(spec.address), "dev", "eth0")
        self._ip(name, "link", "set", "eth0", "addrgenmode", "none", "up")
        for route in spec.routes:
            # The source is the address; without a scope the kernel would ask for a gateway.
            self._ip(name, "route", "replace", str(route), "dev", "eth0", "scope", "link")

    def _put_rules_before_local_addresses(self, name: str) -> None:
        """Let the machine's own rules decide about the metadata address.

        On AWS the service is outside the instance. Here its address is one of the machine's own,
        and the kernel looks those up first, before any rule that the machine makes.
        """
        local = ("lookup", "local")
        self.host.run(["ip", "-n", name, "rule", "del", "preference", _LOCAL_PREFERENCE, *local])
        self._ip(name, "rule", "add", "preference", _LOCAL_PREFERENCE, *local)
        self.host.run(["ip", "-n", name, "rule", "del", "preference", "0", *local])

    def _has_eth0(self, name: str) -> bool:
        return self.host.run(["ip", "-n", name, "link", "show", "eth0"]).returncode == 0

    def _add_namespace(self, name: str) -> None:
        with self._host_lock():
            if (self.netns_root / name).exists():
                return
            if not self.mark.exists() and not self._is_mounted():
                self.mark.touch()
            run_checked(self.host, ["ip", "netns", "add", name])

    @contextlib.contextmanager
    def _host_lock(self) -> Iterator[None]:
        """Keep out this host's other local clouds; not to be nested."""
        self.mark.parent.mkdir(parents=True, exist_ok=True)
        with _THREAD_LOCK, self.mark.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _is_mounted(self) -> bool:
        lines = self.mountinfo.read_text().splitlines()
        return any(line.split()[4] == str(self.netns_root) for line in lines)

    def _ip(self, namespace: str, *words: str) -> None:
        run_checked(self.host, ["ip", "-n", namespace, *words])

    def _sysctl(self, namespace: str, *settings: str) -> None:
        """Set kernel settings of a namespace; /proc/sys/net is the caller's own."""
        inside = ["nsenter", f"--net={self.netns_root / namespace}", "--"]
        run_checked(self.host, [*inside, "sysctl", "--quiet", "--write", *settings])


def _port(spec: MachineSpec) -> str:
    """Return the name of the router's end of the cable."""
    return "v" + spec.instance_id.removeprefix("i-")[-_PORT_DIGITS:]
