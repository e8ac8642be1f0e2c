"""A fake host for the code of machines."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import TYPE_CHECKING

import pytest

from toolkit.local.machines.driver import CommandResult, MachineSpec

if TYPE_CHECKING:
    from pathlib import Path

OK = CommandResult(0, b"", b"")


@dataclass
class FakeHost:
    """A host with namespaces, links and copies in memory.

    Commands in `broken` fail, and every other command succeeds.
    """

    netns_root: Path
    broken: dict[str, str] = field(default_factory=dict)
    links: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    rules: dict[str, list[str]] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)

    def run(self, argv, *, stdin=b"", timeout=30, env=None):
        words = list(argv)
        self.commands.append(words)
        self.inputs.append(stdin)
        for start, message in self.broken.items():
            if " ".join(words).startswith(start):
                return CommandResult(1, b"", message.encode())
        if words[:2] == ["ip", "netns"]:
            return self._netns(words[2], words[3])
        if words[:2] == ["ip", "-n"] and words[3] == "rule":
            return self._rule(self.rules[words[2]], words[4], " ".join(words[6:]))
        if words[:2] == ["ip", "-n"]:
            return self._link(words[2], words[3:])
        if words[0] == "cp":
            shutil.copytree(words[-2], words[-1], symlinks=True)
        return OK

    def _netns(self, verb, name):
        path = self.netns_root / name
        if verb == "add":
            self.netns_root.mkdir(exist_ok=True)
            path.touch(exist_ok=False)
            self.rules[name] = ["0 lookup local", "32766 lookup main", "32767 lookup default"]
        else:
            path.unlink()
            self.links = {key: value for key, value in self.links.items() if key[0] != name}
        return OK

    def _rule(self, rules, verb, rule):
        if verb == "add":
            rules.append(rule)
            rules.sort(key=lambda item: int(item.split()[0]))
        elif rule in rules:
            rules.remove(rule)
        else:
            return CommandResult(2, b"", b"No such file or directory")
        return OK

    def _link(self, namespace, words):
        if not (self.netns_root / namespace).exists():
            return CommandResult(1, b"", b"Cannot open network namespace")
        match words:
            case ["link", "show", name]:
                return (
                    OK
                    if (namespace, name) in self.links
                    else CommandResult(1, b"", b"no such device")
                )
            case ["link", "add", name, "type", "veth", "peer", "name", peer, *_, "netns", other]:
                self.links[namespace, name] = [f"veth to {other}"]
                self.links[other, peer] = [f"veth to {namespace}"]
            case ["link", "del", name]:
                return OK if self.links.pop((namespace, name), None) else CommandResult(1, b"", b"")
            case ["addr", "replace", address, "dev", device, *_]:
                self.links.setdefault((namespace, device), []).append(address)
            case ["route", "replace", route, "dev", device, *_]:
                self.links[namespace, device].append(f"route {route}")
        return OK


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path / "netns")


@pytest.fixture
def make_spec(tmp_path):
    def make(**changed):
        values = {
            "instance_id": "i-0123456789abcdef0",
            "hostname": "ip-10-42-1-10.ec2.internal",
            "image_id": "ami-0123456789abcdef0",
            "address": IPv4Interface("10.42.1.10/24"),
            "mac": "02:00:00:00:00:0a",
            "fs_root": tmp_path / "fsx",
            "vpc_id": "vpc-0123456789abcdef0",
            "routes": (IPv4Network("10.42.0.0/16"),),
        }
        return MachineSpec(**(values | changed))

    return make


@pytest.fixture
def make_builder(make_spec):
    def make(**changed):
        values = {"address": None, "host_network": True, "mac": "", "routes": ()}
        return make_spec(**(values | changed))

    return make
