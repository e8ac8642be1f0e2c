"""Rules about the way between site and cloud: addresses, ports, time, and what was measured."""

from __future__ import annotations

import re
import shlex
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Final

from slurmplugins.config.node import SLURMCTLD_PORT
from toolkit.join.preflight.findings import Hit, Origin, SiteRule
from toolkit.lint.finding import Severity
from toolkit.lint.slurm_conf.rule import MAN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import Connection, PreflightFacts

PORTS: Final = "https://slurm.schedmd.com/network.html"
MUNGE: Final = "https://github.com/dun/munge/wiki/Man-7-munge"
AWS_MTU: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/network_mtu.html"
MUNGE_SECONDS: Final = 300
"""A credential's lifetime by default (munged's default TTL)."""
SLURM_SECONDS: Final = 60
"""A credential's lifetime of auth/slurm (DEFAULT_TTL in auth_slurm.h)."""
CLOCK_SHARE: Final = 10
"""A tenth of a lifetime is a fault of the clock, and no jitter."""
SLOW_SECONDS: Final = 0.1
"""Above the way round half of a continent; a step's launch takes several such ways."""
TCP_TIMEOUT: Final = 2
ETHERNET: Final = 1500
_ADDRESS: Final = re.compile(r"\(([^)]*)\)")
_DEFAULT_ROUTE: Final = IPv4Network("0.0.0.0/0")
ROUTES: Final = Origin("ip route show")


def _overlap(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    for subnet in cloud.subnets:
        for route in facts.routes or ():
            if route.direct and route.network.overlaps(subnet):
                text = f"the subnet {subnet} overlaps {route.network}, the controller's own network"
                text += f" on {route.device}: packets for cloud nodes never leave it"
                fix = "Give the VPC's subnets addresses that the site does not use."
                yield Hit(ROUTES, text, fix, f"network.cidr: not {subnet}, in cluster.yaml")
    for node in facts.nodes or ():
        address = _address(node.address)
        if address is not None and any(address in subnet for subnet in cloud.subnets):
            text = f"the node {node.name} has {address}, which is in a subnet of the join"
            fix = "Give the VPC's subnets addresses that the site does not use."
            yield Hit(Origin("scontrol show nodes"), text, fix)
            return


def _no_route(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    if facts.routes is None:
        return
    networks = [route.network for route in facts.routes]
    for subnet in cloud.subnets:
        if not any(subnet.subnet_of(item) for item in networks if item != _DEFAULT_ROUTE):
            way = "only its default route" if _DEFAULT_ROUTE in networks else "no route at all"
            text = f"the controller has {way} to {subnet}"
            fix = "Add a route through the VPN's gateway, unless the default gateway has one."
            yield Hit(ROUTES, text, fix, f"ip route add {subnet} via GATEWAY")


def _controller_names(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    """Find a controller by a name that the VPC can't resolve."""
    for key, value in facts.site.running.items():
        if not key.startswith("slurmctldhost"):
            continue
        name, stated = value.split("(")[0].strip(), _ADDRESS.search(value)
        if stated is not None and _address(stated[1]) is not None:
            text = _unreachable(stated[1], cloud)
        else:
            found = facts.addresses.get(name, ())
            text = f"nodes must find the address of {name} by a name that the VPC does not know"
            usable = [item for item in found if not item.startswith("127.")]
            stated_address = usable[0] if usable else "ADDRESS"
            setting = f"SlurmctldHost={name}({stated_address})"
            fix = "State the address, or forward the site's domain to its DNS by Route 53 Resolver."
            yield Hit(facts.origin("SlurmctldHost"), text, fix, setting)
            continue
        if text:
            fix = "State an address that the cloud's subnets reach through the tunnel."
            yield Hit(facts.origin("SlurmctldHost"), text, fix, f"SlurmctldHost={name}(ADDRESS)")


def _unreachable(text: str, cloud: CloudSide) -> str:
    address = IPv4Address(text)
    if address.is_loopback or address.is_link_local:
        return f"SlurmctldHost states {address}, which means each node itself"
    if any(address in subnet for subnet in cloud.subnets):
        return f"SlurmctldHost states {address}, which is in a subnet of the join"
    return ""


def _node_name(facts: PreflightFacts, cloud: CloudSide) -> Iterator[Hit]:
    for name in cloud.nodes[:1]:
        addresses = [_address(item) for item in facts.addresses.get(name, ())]
        known = [item for item in addresses if item is not None]
        if known and not any(item in subnet for item in known for subnet in cloud.subnets):
            text = (
                f"the site's resolver gives {known[0]} for cloud node {name}, which is not in the"
            )
            text += " subnets"
            fix = "Remove the record, or rename the pool: commands would reach another host."
            setting = shlex.join(("getent", "ahostsv4", name))
            yield Hit(Origin("getent ahostsv4"), text, fix, setting)


def _listening(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    text_of_ports = facts.value("SlurmctldPort") or str(SLURMCTLD_PORT)
    ports = [int(item) for item in re.findall(r"\d{1,5}", text_of_ports)]
    if facts.listening_ports is None or not ports:
        return
    if not any(ports[0] <= port <= ports[-1] for port in facts.listening_ports):
        text = f"nothing listens on slurmctld's port {text_of_ports} of the host that was asked"
        fix = "Ask the controller in charge; start slurmctld there."
        yield Hit(Origin("ss -l -t -n"), text, fix, "systemctl start slurmctld")


def _srun_ports(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    value = facts.value("SrunPortRange")
    if value in {"", "0-0"}:
        text = "nodes connect to srun on any port of the submit hosts: a firewall must let all in"
        fix = "Limit the ports, and open them from the subnets to the submit hosts."
        yield Hit(facts.origin("SrunPortRange"), text, fix, "SrunPortRange=60001-63000")


def _ipv4(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.parameter("CommunicationParameters", "DisableIPv4") is not None:
        text = "Slurm talks IPv6 alone, and the subnets have IPv4"
        fix = "Let it talk both."
        setting = "CommunicationParameters=EnableIPv6"
        yield Hit(facts.origin("CommunicationParameters"), text, fix, setting)


def _database_host(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    host = facts.value("AccountingStorageHost")
    has_database = facts.value("AccountingStorageType") == "accounting_storage/slurmdbd"
    if has_database and host.lower() in {"localhost", "127.0.0.1", "::1"}:
        text = f"AccountingStorageHost={host} means each node itself: sacct in a job finds nothing"
        fix = "State the host's address; open its port 6819 from the subnets."
        setting = "AccountingStorageHost=ADDRESS"
        yield Hit(facts.origin("AccountingStorageHost"), text, fix, setting)


def _clock_runs_free(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    if facts.clock.synchronized is False:
        text = "the controller's clock is not synchronised, and EC2's are"
        fix = "Run a time service; nodes refuse a credential from another time."
        yield Hit(Origin("chronyc tracking"), text, fix, "systemctl enable --now chrony")


def _clock_is_off(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    offset = facts.clock.offset_seconds
    is_munge = facts.value("AuthType") != "auth/slurm"
    lifetime = MUNGE_SECONDS if is_munge else SLURM_SECONDS
    if offset is not None and offset * CLOCK_SHARE > lifetime:
        text = f"the controller's clock is {offset:.1f} s off: a credential lives {lifetime} s, and"
        text += " nodes refuse it before or after"
        yield Hit(Origin("chronyc tracking"), text, "Set the clock.", "chronyc makestep")


def _unreached(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for item in facts.connections:
        if item.outcome in {"silent", "no-address"}:
            why = "gave no answer" if item.outcome == "silent" else "has no address there"
            text = f"from the {item.side}, {item.host}:{item.port} {why}"
            fix = "Open the port in firewalls and security groups, and route both ways."
            yield Hit(_measured(item), text, fix, _ports(item))


def _ports(item: Connection) -> str:
    if item.side == "cloud":
        return "to the controller: tcp 6817; to slurmdbd: tcp 6819; to submit hosts: SrunPortRange"
    return "from the controller and the racks to the subnets: tcp 6818"


def _slow(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for item in facts.connections:
        seconds = item.median_seconds
        if seconds is not None and seconds > SLOW_SECONDS:
            text = (
                f"from the {item.side}, a connection to {item.host} takes {seconds * 1000:.0f} ms"
            )
            fix = "Choose a nearer region; else give messages more time."
            setting = f"TCPTimeout={TCP_TIMEOUT + 3}\nMessageTimeout=60"
            yield Hit(_measured(item), text, fix, setting)


def _lost_packets(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for item in facts.path_mtus:
        if item.bytes is not None and item.bytes < ETHERNET and not item.told:
            text = f"from the {item.side}, packets to {item.host} of more than {item.bytes} bytes"
            text += " are lost without an answer: long messages stall"
            fix = "Let the gateway answer (ICMP type 3, code 4), or let it limit TCP's segments."
            setting = "iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN"
            setting += f" -j TCPMSS --set-mss {item.bytes - 40}"
            yield Hit(Origin(f"ping -M do {item.host}"), text, fix, setting)


def _small_mtu(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for item in facts.path_mtus:
        if item.bytes is not None and item.bytes < ETHERNET and item.told:
            text = (
                f"from the {item.side}, the path to {item.host} takes {item.bytes} bytes a packet"
            )
            fix = "It works; the route may say so, which saves each connection's first answer."
            setting = f"ip route change SUBNET via GATEWAY mtu {item.bytes}"
            yield Hit(Origin(f"ping -M do {item.host}"), text, fix, setting)


def _measured(item: Connection) -> Origin:
    return Origin(f"connections from the {item.side}")


def _address(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text.strip())
    except AddressValueError:
        return None


_E, _W = Severity.ERROR, Severity.WARNING
RULES: Final = (
    SiteRule("subnet-overlap", _E, PORTS, _overlap),
    SiteRule("unreached", _E, PORTS, _unreached),
    SiteRule("packets-lost", _E, AWS_MTU, _lost_packets),
    SiteRule("clock-off", _E, MUNGE, _clock_is_off),
    SiteRule("no-ipv4", _E, MAN + "#OPT_DisableIPv4", _ipv4),
    SiteRule("controller-silent", _E, PORTS, _listening),
    SiteRule("controller-address", _W, MAN + "#OPT_SlurmctldHost", _controller_names),
    SiteRule("node-name-elsewhere", _W, MAN + "#OPT_NodeAddr", _node_name),
    SiteRule("no-route", _W, PORTS, _no_route),
    SiteRule("srun-ports", _W, MAN + "#OPT_SrunPortRange", _srun_ports),
    SiteRule("database-host", _W, MAN + "#OPT_AccountingStorageHost", _database_host),
    SiteRule("clock-free", _W, MUNGE, _clock_runs_free),
    SiteRule("slow-path", _W, MAN + "#OPT_TCPTimeout", _slow),
    SiteRule("small-packets", _W, AWS_MTU, _small_mtu),
)
