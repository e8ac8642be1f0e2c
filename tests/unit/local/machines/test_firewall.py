"""The rules that nft gets for a VPC's security groups."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest

from toolkit.local.machines.errors import CommandFailed, MachineError
from toolkit.local.machines.firewall import ICMP, TCP, UDP, Firewall, Rule, ruleset
from toolkit.local.machines.packet_filter import PacketFilter, obstacle

HEAD, NODES = "sg-0000000000000000a", "sg-0000000000000000b"
ADDRESS = IPv4Address("10.42.1.10")


def lines(**parts) -> list[str]:
    return [line.strip() for line in ruleset(Firewall(**parts)).splitlines()]


def test_without_groups_nothing_passes_but_answers():
    text = lines()
    assert text[-5:-2] == [
        "type filter hook forward priority filter; policy drop;",
        "ct state established,related accept",
        "goto egress",
    ]
    assert not any("ip " in line.removeprefix("add table ip") and "@" in line for line in text)


def test_the_old_firewall_is_replaced_in_one_transaction():
    assert lines()[:3] == [
        "add table ip security_groups",
        "delete table ip security_groups",
        "table ip security_groups {",
    ]


def test_a_group_is_a_set_of_addresses_and_an_empty_one_a_set_without():
    members = {HEAD: frozenset({IPv4Address("10.42.1.12"), ADDRESS})}
    rule = Rule(NODES, None, None, peer_group=HEAD)
    text = lines(members=members, ingress=frozenset({rule}))
    set_of = "set sg_0000000000000000"
    assert f"{set_of}a {{ type ipv4_addr; elements = {{ 10.42.1.10, 10.42.1.12 }}; }}" in text
    assert f"{set_of}b {{ type ipv4_addr; }}" in text


@pytest.mark.parametrize(
    ("protocol", "ports", "peer", "statement"),
    [
        (TCP, (6817, 6817), HEAD, "ip saddr @sg_0000000000000000a tcp dport 6817-6817"),
        (UDP, (0, 65535), HEAD, "ip saddr @sg_0000000000000000a udp dport 0-65535"),
        (TCP, None, HEAD, "ip saddr @sg_0000000000000000a ip protocol 6"),
        (None, None, HEAD, "ip saddr @sg_0000000000000000a"),
        (None, None, "10.0.0.0/8", "ip saddr 10.0.0.0/8"),
        (None, None, "0.0.0.0/0", ""),
        (47, None, "0.0.0.0/0", "ip protocol 47"),
        (ICMP, (8, -1), "0.0.0.0/0", "ip protocol 1 icmp type 8"),
        (ICMP, (3, 4), "0.0.0.0/0", "ip protocol 1 icmp type 3 icmp code 4"),
    ],
)
def test_each_kind_of_rule_has_its_statement(protocol, ports, peer, statement):
    end = {"peer_group": peer} if peer == HEAD else {"peer_network": IPv4Network(peer)}
    rule = frozenset({Rule(NODES, protocol, ports, **end)})
    own = "@sg_0000000000000000b"
    ingress = " ".join(filter(None, (f"ip daddr {own}", statement, "accept")))
    egress = " ".join(
        filter(None, (f"ip saddr {own}", statement.replace("saddr", "daddr"), "goto ingress"))
    )
    assert ingress in lines(ingress=rule)
    assert egress in lines(egress=rule)


@pytest.mark.parametrize("name", ["sg-1; flush ruleset", "sg-0123456g", "any", ""])
def test_an_id_that_is_more_than_an_id_never_reaches_nft(name):
    with pytest.raises(MachineError, match="no id of a security group"):
        Rule(name, None, None, peer_group=HEAD)
    with pytest.raises(MachineError, match="no id of a security group"):
        Rule(HEAD, None, None, peer_group=name)
    with pytest.raises(MachineError, match="no id of a security group"):
        Firewall({name: frozenset()})


def test_a_rule_has_one_peer():
    with pytest.raises(MachineError, match="one peer"):
        Rule(HEAD, None, None)
    with pytest.raises(MachineError, match="one peer"):
        Rule(HEAD, None, None, peer_group=HEAD, peer_network=IPv4Network("10.0.0.0/8"))


def loads(host) -> list[str]:
    """Return the rulesets that were put in force, without the trial."""
    return [
        text for words, text in zip(host.commands, host.inputs, strict=True)
        if words[0] == "nsenter" and "nft" in words
    ]  # fmt: skip


def test_a_firewall_in_force_is_not_loaded_again(host, tmp_path):
    packet_filter = PacketFilter(host)
    first, second = Firewall({HEAD: frozenset({ADDRESS})}), Firewall({HEAD: frozenset()})
    for firewall in (first, first, second, second, first):
        packet_filter.load(tmp_path / "vpc", firewall)
    assert loads(host) == [ruleset(one).encode() for one in (first, second, first)]
    packet_filter.load(tmp_path / "other", first)
    assert len(loads(host)) == 4


def test_a_new_namespace_is_closed_whatever_was_in_force_under_its_name(host, tmp_path):
    packet_filter = PacketFilter(host)
    open_firewall = Firewall({HEAD: frozenset({ADDRESS})})
    packet_filter.load(tmp_path / "vpc", open_firewall)
    packet_filter.close(tmp_path / "vpc")
    packet_filter.load(tmp_path / "vpc", open_firewall)
    closed = ruleset(Firewall()).encode()
    assert loads(host) == [ruleset(open_firewall).encode(), closed, ruleset(open_firewall).encode()]


def test_a_firewall_that_could_not_be_loaded_is_tried_again(host, tmp_path):
    packet_filter = PacketFilter(host)
    host.broken["nsenter"] = "Error: syntax"
    for _ in range(2):
        with pytest.raises(CommandFailed, match="Error: syntax"):
            packet_filter.load(tmp_path / "vpc", Firewall())
    assert len(loads(host)) == 2


def test_without_nftables_machines_run_unfiltered_and_the_log_says_so_once(host, tmp_path, caplog):
    host.broken["unshare --net -- nft"] = "Error: Could not process rule: Not supported\nmore"
    packet_filter = PacketFilter(host)
    for number in range(3):
        packet_filter.load(tmp_path / f"vpc-{number}", Firewall())
    assert loads(host) == []
    (record,) = caplog.records
    assert record.getMessage() == (
        "security groups do not hold: Error: Could not process rule: Not supported"
    )
    assert obstacle(host) == "Error: Could not process rule: Not supported"
