"""The firewall of a VPC: by its rules security groups hold between machines. Pure.

EC2 judges a new connection twice, at the sender by the egress rules of its groups and at the
receiver by their ingress rules. Answers pass, and so does what was connected before a change:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/security-group-connection-tracking.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.local.machines.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from ipaddress import IPv4Address, IPv4Network

TABLE = "security_groups"
ICMP, TCP, UDP = 1, 6, 17  # IANA's numbers
_PORTS = {TCP: "tcp", UDP: "udp"}
_GROUP_ID = re.compile(r"sg-[0-9a-f]{8,17}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of one security group; the peer is a group, or else a network.

    `protocol` None is all of them. `ports` None is all of them too; for ICMP these are type and
    code, -1 for any.
    """

    group: str
    protocol: int | None
    ports: tuple[int, int] | None
    peer_group: str | None = None
    peer_network: IPv4Network | None = None

    def __post_init__(self) -> None:
        """Refuse unsafe ids, and a rule without a peer."""
        _check_group_ids(group for group in (self.group, self.peer_group) if group is not None)
        if (self.peer_group is None) == (self.peer_network is None):
            raise MachineError(f"a rule of {self.group} must have one peer")


@dataclass(frozen=True, slots=True)
class Firewall:
    """The groups of a VPC with the addresses of their members, and their rules."""

    members: Mapping[str, frozenset[IPv4Address]] = field(default_factory=dict)
    ingress: frozenset[Rule] = frozenset()
    egress: frozenset[Rule] = frozenset()

    def __post_init__(self) -> None:
        """Refuse an id that could be read as more than an id."""
        _check_group_ids(self.members)


def ruleset(firewall: Firewall) -> str:
    """Return the firewall as nft(8) reads it.

    It takes the place of the old one in one transaction. Each group is a set, so the number of
    rules does not grow with the number of machines.
    """
    lines = [
        f"add table ip {TABLE}",  # so that there is one to delete
        f"delete table ip {TABLE}",
        f"table ip {TABLE} {{",
        *_sets(firewall),
        *_chain("ingress", _statements(firewall.ingress, "daddr", "saddr", "accept")),
        *_chain("egress", _statements(firewall.egress, "saddr", "daddr", "goto ingress")),
        *_chain(
            "forward",
            (
                "type filter hook forward priority filter; policy drop;",
                "ct state established,related accept",
                "goto egress",
            ),
        ),
        "}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _sets(firewall: Firewall) -> Iterator[str]:
    rules = firewall.ingress | firewall.egress
    named_groups = {group for rule in rules for group in (rule.group, rule.peer_group) if group}
    for group in sorted(named_groups | set(firewall.members)):
        addresses = sorted(firewall.members.get(group, ()))
        elements = f" elements = {{ {', '.join(map(str, addresses))} }};" if addresses else ""
        yield f"  set {_set_name(group)} {{ type ipv4_addr;{elements} }}"


def _chain(name: str, statements: Iterable[str]) -> Iterator[str]:
    yield f"  chain {name} {{"
    yield from (f"    {statement}" for statement in statements)
    yield "  }"


def _statements(rules: Iterable[Rule], own: str, peer: str, verdict: str) -> list[str]:
    """Return a statement for each rule.

    `own` and `peer` are the ends of a packet."""
    return sorted(
        " ".join(
            (f"ip {own} @{_set_name(rule.group)}", *_peer(rule, peer), *_traffic(rule), verdict)
        )
        for rule in rules
    )


def _peer(rule: Rule, end: str) -> Iterator[str]:
    if rule.peer_group is not None:
        yield f"ip {end} @{_set_name(rule.peer_group)}"
    elif rule.peer_network is not None and rule.peer_network.prefixlen:
        yield f"ip {end} {rule.peer_network}"


def _traffic(rule: Rule) -> Iterator[str]:
    if rule.protocol is None:
        return
    if rule.protocol in _PORTS and rule.ports is not None:
        yield f"{_PORTS[rule.protocol]} dport {rule.ports[0]}-{rule.ports[1]}"
        return
    yield f"ip protocol {rule.protocol}"
    if rule.protocol == ICMP and rule.ports is not None:
        kinds = zip(("type", "code"), rule.ports, strict=True)
        yield from (f"icmp {name} {value}" for name, value in kinds if value >= 0)


def _set_name(group: str) -> str:
    """Return the group's id without the hyphen, which nft refuses."""
    return group.replace("-", "_")


def _check_group_ids(group_ids: Iterable[str]) -> None:
    for group_id in group_ids:
        if not _GROUP_ID.fullmatch(group_id):
            raise MachineError(f"{group_id!r} is no id of a security group")
