"""nft's rules permit exactly the connections that EC2's words about security groups permit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from hypothesis import given, strategies as st

from toolkit.local.machines.firewall import TCP, UDP, Firewall, Rule, ruleset

GROUPS = [f"sg-0000000{number}" for number in range(4)]
ADDRESSES = [IPv4Address(f"10.0.{number // 2}.{number}") for number in range(5)]
NETWORKS = [
    IPv4Network(text) for text in ("0.0.0.0/0", "10.0.0.0/24", "10.0.1.2/32", "10.1.0.0/16")
]
PORTS = (1, 22, 6817, 65535)
NAMES = {TCP: "tcp", UDP: "udp"}

ports = st.none() | st.tuples(st.sampled_from(PORTS), st.sampled_from(PORTS)).map(sorted).map(tuple)
rules = st.builds(
    lambda group, protocol, ports, peer: Rule(group, protocol, ports, **peer),
    st.sampled_from(GROUPS),
    st.sampled_from([None, TCP, UDP, 47]),
    ports,
    st.fixed_dictionaries({"peer_group": st.sampled_from(GROUPS)})
    | st.fixed_dictionaries({"peer_network": st.sampled_from(NETWORKS)}),
)
firewalls = st.builds(
    Firewall,
    st.dictionaries(st.sampled_from(GROUPS), st.frozensets(st.sampled_from(ADDRESSES))),
    st.frozensets(rules, max_size=5),
    st.frozensets(rules, max_size=5),
)
ends = st.sampled_from(ADDRESSES)
traffic = st.sampled_from([(protocol, port) for protocol in (TCP, UDP) for port in PORTS]) | (
    st.just((47, None))
)


def permitted(firewall: Firewall, source, target, protocol, port) -> bool:
    """Judge a new connection by egress and ingress, as EC2 does."""

    def one_permits(rules_of_direction, own, peer) -> bool:
        return any(
            own in firewall.members.get(rule.group, ())
            and rule.protocol in (None, protocol)
            and (
                rule.protocol not in NAMES
                or rule.ports is None
                or rule.ports[0] <= port <= rule.ports[1]
            )
            and (
                peer in rule.peer_network
                if rule.peer_network is not None
                else peer in firewall.members.get(rule.peer_group, ())
            )
            for rule in rules_of_direction
        )

    return one_permits(firewall.egress, source, target) and one_permits(
        firewall.ingress, target, source
    )


@dataclass(frozen=True)
class Packet:
    """The first packet of a connection."""

    source: IPv4Address
    target: IPv4Address
    protocol: int
    port: int | None

    def meets(self, words: list[str], sets: dict[str, set[IPv4Address]]) -> bool:
        """Judge the conditions of one statement, as nft(8) reads them."""
        match words:
            case []:
                return True
            case ["ip", ("saddr" | "daddr") as end, value, *rest]:
                address = self.source if end == "saddr" else self.target
                met = address in (sets[value[1:]] if value[0] == "@" else IPv4Network(value))
            case ["ip", "protocol", value, *rest]:
                met = int(value) == self.protocol
            case [name, "dport", value, *rest]:
                first, last = map(int, value.split("-"))
                met = NAMES.get(self.protocol) == name and first <= self.port <= last
        return met and self.meets(rest, sets)


def passes(text: str, packet: Packet) -> bool:
    """Judge a packet by the whole text."""
    elements = re.findall(r"set (\w+) \{ type ipv4_addr;(?: elements = \{ ([^}]*) \};)? \}", text)
    sets = {
        name: {IPv4Address(word) for word in words.split(", ") if word} for name, words in elements
    }
    bodies = re.findall(r"chain (\w+) \{\n(.*?)\n?  \}", text, re.DOTALL)
    chains = {name: [line.split() for line in body.strip().splitlines()] for name, body in bodies}
    chains["forward"] = chains["forward"][2:]  # the policy, and what is no new connection

    def verdict(name: str) -> bool:
        for words in chains[name]:
            if words[-1] == "accept" and packet.meets(words[:-1], sets):
                return True
            if words[-2] == "goto" and packet.meets(words[:-2], sets):
                return verdict(words[-1])
        return False

    return verdict("forward")


@given(firewalls, ends, ends, traffic)
def test_nft_permits_what_ec2_permits_and_nothing_else(firewall, source, target, kind):
    expected = permitted(firewall, source, target, *kind)
    assert passes(ruleset(firewall), Packet(source, target, *kind)) == expected


@given(firewalls)
def test_the_same_groups_make_the_same_text(firewall):
    again = Firewall(
        dict(reversed(firewall.members.items())), frozenset(firewall.ingress), firewall.egress
    )
    assert ruleset(again) == ruleset(firewall)
    assert again == firewall
