"""The contract of a machine driver: a Linux machine behind each instance id.

The local cloud uses only this protocol. `NspawnDriver` boots a system container,
`NoneDriver` remembers and does nothing else. Every method is synchronous. It is safe to
call from several threads for different instances, and may be repeated: twice has the
same effect as once.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from toolkit.local.machines.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from ipaddress import IPv4Interface, IPv4Network
    from pathlib import Path

    from toolkit.local.machines.firewall import Firewall

_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
_IMAGE_ID = re.compile(r"ami-[0-9a-f]{8,17}")
_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_VPC_ID = re.compile(r"vpc(-[0-9a-f]{8,17})?")
_VOLUME_ID = re.compile(r"vol-[0-9a-f]{8,17}")
_BY_ID = PurePosixPath("/dev/disk/by-id")


class MachineState(enum.Enum):
    """The remains of an instance on this host."""

    ABSENT = "absent"  # no disk, no process
    STARTING = "starting"  # the launcher runs, the machine's PID 1 is not there yet
    RUNNING = "running"  # the machine's PID 1 is alive
    EXITED = "exited"  # a disk, and no process: stopped, powered off or crashed


@dataclass(frozen=True, slots=True)
class AttachedVolume:
    """An EBS volume that a machine has besides its disk; checked when it is made."""

    id: str
    gib: int

    def __post_init__(self) -> None:
        """Refuse an unsafe path."""
        _must_match("volume id", self.id, _VOLUME_ID)

    @property
    def device(self) -> PurePosixPath:
        """Return the device's path in the machine, which is udev's on EC2."""
        return _BY_ID / f"nvme-Amazon_Elastic_Block_Store_{self.id.replace('-', '')}"


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """Everything a driver needs to boot one instance; checked when it is made.

    `address` is eth0's address and prefix, None for a machine in the host's
    network (a builder). `routes` are networks reached over eth0 without a
    gateway, the other subnets of the VPC. `user_data` is put in the NoCloud seed of
    a host-network machine; a machine with an address gets it from the metadata
    service.
    """

    instance_id: str
    hostname: str
    image_id: str
    address: IPv4Interface | None
    mac: str
    fs_root: Path
    host_network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    vpc_id: str = "vpc"
    routes: tuple[IPv4Network, ...] = ()
    user_data: bytes = b""
    volumes: tuple[AttachedVolume, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an unsafe path, interface or environment."""
        _must_match("instance id", self.instance_id, _INSTANCE_ID)
        _must_match("hostname", self.hostname, _HOSTNAME)
        _must_match("image id", self.image_id, _IMAGE_ID)
        _must_match("VPC id", self.vpc_id, _VPC_ID)
        if self.host_network == (self.address is not None):
            msg = f"{self.instance_id}: an address and host_network exclude each other"
            raise MachineError(msg)
        if not self.host_network:
            _must_match("MAC address", self.mac, _MAC)
        for name, value in self.environment.items():
            _must_match("environment variable", name, _VARIABLE)
            if any(ord(char) < ord(" ") for char in value):
                raise MachineError(f"environment variable {name} has a control character")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's end inside a machine; 124 is the returncode of one that was cut off."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Driver(Protocol):
    """A host's ability to run machines for instance ids."""

    def start(
        self, spec: MachineSpec, *, on_network: Callable[[Path | None], None] | None = None
    ) -> None:
        """Boot the machine; returns once its process runs.

        A running machine is left alone. `on_network` is called with the path of the
        machine's network namespace (None: the host's), after it exists and before
        anything runs in it. A metadata service can then listen there before the machine
        asks.
        """

    def state(self, instance_id: str) -> MachineState:
        """Say what there is of the machine, read afresh."""

    def stop(self, instance_id: str, *, grace: float) -> None:
        """Ask the machine to power off; keep its disk.

        It is killed after `grace` seconds.
        """

    def delete(self, instance_id: str) -> None:
        """End the machine and remove disk and network.

        The console log stays.
        """

    def attach(self, instance_id: str, volume: AttachedVolume) -> None:
        """Give a running machine the volume's device, or its new size."""

    def detach(self, instance_id: str, volume: AttachedVolume) -> bool:
        """Take the device away; return False while it is mounted."""

    def execute(
        self, instance_id: str, argv: Sequence[str], *, timeout: float, stdin: bytes = b""
    ) -> CommandResult:
        """Run a command as root inside the machine.

        Raises MachineError if it is not running.
        """

    def set_firewall(self, vpc_id: str, firewall: Firewall) -> None:
        """Let the security groups of a VPC hold between its machines.

        Machines of a VPC that has no firewall yet do not reach each other.
        """

    def console(self, instance_id: str) -> bytes:
        """Return the machine's console output, also after it was deleted."""

    def snapshot(self, instance_id: str, image_id: str) -> None:
        """Keep a stopped machine's disk as an image; MachineError while it runs."""

    def list(self) -> tuple[str, ...]:
        """Return every instance this state directory owns anything of, running or not."""


def _must_match(label: str, value: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(value):
        raise MachineError(f"{label} {value!r} is not of the form {pattern.pattern}")


def check_instance_id(instance_id: str) -> str:
    """Return the id if it is valid, hence safe in paths.

    Raises MachineError.
    """
    _must_match("instance id", instance_id, _INSTANCE_ID)
    return instance_id


def check_image_id(image_id: str) -> str:
    """Return the id if it is valid, hence safe in paths.

    Raises MachineError.
    """
    _must_match("image id", image_id, _IMAGE_ID)
    return image_id


def check_vpc_id(vpc_id: str) -> str:
    """Return the id if it is valid, hence safe in paths.

    Raises MachineError.
    """
    _must_match("VPC id", vpc_id, _VPC_ID)
    return vpc_id
