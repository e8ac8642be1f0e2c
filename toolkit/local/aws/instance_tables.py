"""moto's tables, under one lock, with what they do not remember about an instance."""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import StateReason

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.local.faults import CapacityPool

STATE_CODES = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
LIVE_STATES = ("pending", "running", "stopping", "stopped")
_REACHED_STATES = ("stopped", "terminated")


@dataclass(frozen=True, slots=True)
class Reason:
    """The cause of an instance's last state change, as DescribeInstances reports it."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def transition(self, wall: float) -> str:
        """Return what StateTransitionReason says.

        A call's and EC2's own have the moment in it, also that of an interruption.
        """
        moment = datetime.fromtimestamp(int(wall), UTC).strftime("%Y-%m-%d %H:%M:%S")
        if self.code == "Client.UserInitiatedShutdown":
            return f"User initiated ({moment} GMT)"
        return f"Service initiated ({moment} GMT)" if self.code.startswith("Server.") else self.code


USER_SHUTDOWN = Reason("Client.UserInitiatedShutdown", "User initiated shutdown")
GUEST_SHUTDOWN = Reason("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
SPOT_TERMINATION = Reason("Server.SpotInstanceTermination", "Spot instance termination")
START_FAILED = Reason("Server.InternalError", "Internal error on launch")


@dataclass(frozen=True, slots=True)
class Notice:
    """An interruption that EC2 announced: wall-clock moment and the daemon's own deadline."""

    time: float
    deadline: float


@dataclass(slots=True)
class LocalInstance:
    """An instance: moto's row and the local cloud's additional facts."""

    row: Any
    region: str
    pool: CapacityPool
    launched_at: float
    user_data: str | None = None
    volumes: dict[str, int] = field(default_factory=dict)  # attached since its launch: id → GiB
    detaching: set[str] = field(default_factory=set)  # those of them that shall go
    request_tags: Mapping[str, str] = field(default_factory=dict)  # of its spot request
    reason: Reason | None = None  # of the end it is on its way to
    transition: str = ""  # EC2's words on the last change that was asked for, with its moment
    notice: Notice | None = None
    rebalance_time: float | None = None  # wall clock of the recommendation
    reboot_requested: bool = False
    impaired_since: float | None = None  # wall clock since when a status check fails
    events: tuple[tuple[str, float], ...] = ()  # EC2's code, wall clock
    terminated_at: float | None = None

    @property
    def id(self) -> str:
        """Return the instance id."""
        return str(self.row.id)

    @property
    def state(self) -> str:
        """Return the state's name."""
        return str(self.row.state)

    @property
    def reason_text(self) -> str | None:
        """Return the reason of the state in words."""
        reason = self.row.state_reason
        return str(reason.message) if reason else None

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags as they are now."""
        return dict(self.row.ec2_backend.tags.get(self.id, {}))


StateWatcher = Callable[[LocalInstance, str, Reason | None, float], None]
"""Called with the lock held, when an instance has reached a state, and at what time."""


@dataclass(slots=True)
class Tables:
    """The lock, the clock and every instance. Read and write with the lock held."""

    clock: Callable[[], float]
    wall: Callable[[], float]
    lock: threading.RLock = field(default_factory=threading.RLock)
    instances: dict[str, LocalInstance] = field(default_factory=dict)
    wanted_addresses: set[str] = field(default_factory=set)  # of running stack operations
    on_state: StateWatcher = lambda *_: None

    def instance(self, instance_id: str) -> LocalInstance:
        """Return the instance's row, or refuse as EC2 does."""
        instance = self.instances.get(instance_id)
        if instance is None:
            message = f"The instance ID '{instance_id}' does not exist"
            raise ec2_error("InvalidInstanceID.NotFound", message)
        return instance

    def ec2(self, region: str) -> Any:
        """Return moto's EC2 of a region."""
        return ec2_backends[ACCOUNT][region]

    def regions(self) -> list[str]:
        """Return the regions that were used so far."""
        return list(dict.keys(ec2_backends[ACCOUNT]))

    def utc_now(self) -> datetime:
        """Return the wall clock's time as moto keeps times, without a zone."""
        return datetime.fromtimestamp(int(self.wall()), UTC).replace(tzinfo=None)

    def live_instances(self) -> Iterator[LocalInstance]:
        """Return every instance that is not ended or ending."""
        return (
            instance for instance in list(self.instances.values()) if instance.state in LIVE_STATES
        )

    def set_state(self, instance: LocalInstance, name: str, reason: Reason | None = None) -> None:
        """Write a state and its reason into moto's row."""
        wall, row = self.wall(), instance.row
        row._state.name = name
        row._state.code = STATE_CODES[name]
        row.state_reason = StateReason(str(reason), reason.code) if reason else None
        if name not in _REACHED_STATES:  # EC2 goes on telling when the change was asked for
            instance.transition = reason.transition(wall) if reason else ""
        row._reason = instance.transition
        self.on_state(instance, name, reason, wall)
