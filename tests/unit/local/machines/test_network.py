"""Machines of a VPC share a router.

Nothing of a local cloud's network stays on the host after the cloud.
"""

from ipaddress import IPv4Interface

import pytest

from toolkit.local.machines.errors import CommandFailed
from toolkit.local.machines.firewall import Firewall, ruleset
from toolkit.local.machines.network import Network
from toolkit.local.machines.packet_filter import PacketFilter

VPC = "tkl-abc123-vpc-0123456789abcdef0"


@pytest.fixture
def mountinfo(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text("")
    return path


@pytest.fixture
def network(host, tmp_path, mountinfo):
    packet_filter = PacketFilter(host)
    return Network(
        "tkl-abc123", host, packet_filter, tmp_path / "mark", tmp_path / "netns", mountinfo
    )


def test_a_machine_has_a_veth_its_address_and_the_metadata_address(network, host, make_spec):
    path = network.connect(make_spec())
    assert path.name == "tkl-abc123-i-0123456789abcdef0"
    assert host.links[path.name, "eth0"] == [
        f"veth to {VPC}",
        "10.42.1.10/24",
        "route 10.42.0.0/16",
    ]
    assert host.links[path.name, "lo"] == ["169.254.169.254/32"]


def test_the_router_of_a_vpc_leads_to_each_machine_by_its_own_cable(network, host, make_spec):
    network.connect(make_spec())
    second = make_spec(instance_id="i-0fedcba9876543210", address=IPv4Interface("10.42.2.10/24"))
    network.connect(second)
    rows = {name: rows for (space, name), rows in host.links.items() if space == VPC}
    assert rows["v3456789abcdef0"][-1] == "route 10.42.1.10/32"
    assert rows["vdcba9876543210"][-1] == "route 10.42.2.10/32"


def test_the_router_has_the_first_address_of_each_subnet(network, host, make_spec):
    network.connect(make_spec())
    second = make_spec(instance_id="i-0fedcba9876543210", address=IPv4Interface("10.42.2.10/24"))
    network.connect(second)
    assert host.links[VPC, "lo"] == ["10.42.1.1/32", "10.42.2.1/32"]


def test_a_machine_can_not_send_from_the_address_of_another(network, host, make_spec):
    network.connect(make_spec())
    settings = next(words for words in host.commands if "sysctl" in words)
    assert "net.ipv4.conf.v3456789abcdef0.rp_filter=1" in settings
    assert settings[1] == f"--net={network.netns_root / VPC}"


def firewalls(network, host):
    """Return the firewalls that were put in force in the VPC."""
    inside = ["nsenter", f"--net={network.netns_root / VPC}", "--", "nft"]
    pairs = zip(host.commands, host.inputs, strict=True)
    return [text.decode() for words, text in pairs if words[:4] == inside]


def test_nothing_passes_in_a_new_vpc_until_a_firewall_permits_it(network, host, make_spec):
    firewall = Firewall({"sg-01234567": frozenset()})
    vpc_id = VPC.removeprefix("tkl-abc123-")
    network.set_firewall(vpc_id, firewall)
    assert firewalls(network, host) == [], "the VPC has no machines"
    network.connect(make_spec())
    first_cable = next(at for at, words in enumerate(host.commands) if "veth" in words)
    closed = next(at for at, words in enumerate(host.commands) if words[-3:-2] == ["nft"])
    assert closed < first_cable
    network.set_firewall(vpc_id, firewall)
    network.connect(make_spec())
    assert firewalls(network, host) == [ruleset(Firewall()), ruleset(firewall)]


def test_connecting_twice_changes_nothing(network, host, make_spec):
    network.connect(make_spec())
    first = {key: set(value) for key, value in host.links.items()}
    network.connect(make_spec())
    assert {key: set(value) for key, value in host.links.items()} == first


def test_connect_completes_an_interrupted_start(network, host, make_spec):
    (network.netns_root).mkdir()
    (network.netns_root / VPC).touch()
    host.links[VPC, "v3456789abcdef0"] = ["half made"]
    network.connect(make_spec())
    assert ("tkl-abc123-i-0123456789abcdef0", "eth0") in host.links


def test_interface_names_have_fifteen_characters_at_most(network, host, make_spec):
    network.connect(make_spec())
    assert all(len(name) <= 15 for _, name in host.links)


def test_disconnect_removes_the_namespace_and_may_be_repeated(network, make_spec):
    spec = make_spec()
    network.connect(spec)
    network.disconnect(spec.instance_id)
    network.disconnect(spec.instance_id)
    assert network.namespaces() == (VPC,)
    assert network.instances() == ()


def test_namespaces_of_another_local_cloud_are_not_touched(network, make_spec):
    network.netns_root.mkdir()
    (network.netns_root / "tkl-ffffff-i-0123456789abcdef0").touch()
    (network.netns_root / "somebody").touch()
    assert network.namespaces() == ()
    network.remove_all()
    assert len(list(network.netns_root.iterdir())) == 2


def test_the_mount_of_ip_netns_is_removed_with_the_last_namespace(
    network, host, make_spec, mountinfo
):
    network.connect(make_spec())
    mountinfo.write_text(f"1 2 3:4 / {network.netns_root} rw - ext4 /dev/vda rw\n")
    network.remove_all()
    assert ["umount", str(network.netns_root)] in host.commands
    assert not network.netns_root.exists()


def test_an_earlier_mount_of_ip_netns_is_kept(network, host, make_spec, mountinfo):
    mountinfo.write_text(f"1 2 3:4 / {network.netns_root} rw - ext4 /dev/vda rw\n")
    network.connect(make_spec())
    network.remove_all()
    assert not any(words[0] == "umount" for words in host.commands)


def test_a_failing_ip_command_is_named_with_its_error(network, host, make_spec):
    host.broken["ip netns add"] = "Operation not permitted"
    with pytest.raises(CommandFailed, match=r"ip netns add .* Operation not permitted"):
        network.connect(make_spec())


def test_rules_of_the_machine_come_before_its_local_addresses(network, host, make_spec):
    """Leave the first place free, also after an interrupted start."""
    for _ in range(2):
        path = network.connect(make_spec())
        assert host.rules[path.name] == [
            "1 lookup local",
            "32766 lookup main",
            "32767 lookup default",
        ]
    host.rules[path.name].insert(0, "0 lookup local")
    network.connect(make_spec())
    assert host.rules[path.name][0] == "1 lookup local"
