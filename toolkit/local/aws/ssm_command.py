"""A SendCommand, and its course on each instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEFAULT_TIMEOUT = 3600  # seconds; the document's executionTimeout


@dataclass(slots=True)
class Invocation:
    """A command on one instance."""

    instance_id: str
    status: str = "Pending"
    code: int = -1
    stdout: bytes = b""
    stderr: bytes = b""
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def seconds(self) -> float:
        """Return how long the command ran; 0 until it ends."""
        return max(0.0, (self.ended_at or 0) - (self.started_at or 0))


@dataclass(slots=True)
class Command:
    """A SendCommand."""

    id: str
    region: str
    params: Mapping[str, Any]
    requested_at: float
    invocations: dict[str, Invocation] = field(default_factory=dict)

    @property
    def script(self) -> str:
        """Return the commands as the agent joins them."""
        lines: Sequence[str] = self.params.get("Parameters", {}).get("commands", ())
        return "\n".join(lines) + "\n"

    @property
    def directory(self) -> str:
        """Return the working directory asked for, or nothing."""
        values: Sequence[str] = self.params.get("Parameters", {}).get("workingDirectory", ())
        return values[0] if values else ""

    @property
    def timeout(self) -> float:
        """Return how many seconds the script may run."""
        values = self.params.get("Parameters", {}).get("executionTimeout", ())
        return float(values[0]) if values and str(values[0]).isdigit() else _DEFAULT_TIMEOUT

    @property
    def status(self) -> str:
        """Return the status over all instances."""
        states = {invocation.status for invocation in self.invocations.values()}
        for state in ("InProgress", "Pending", "TimedOut", "Failed"):
            if state in states:
                return state
        return "Success"

    def prefix(self, instance_id: str) -> str:
        """Return the key below which the agent writes this instance's output."""
        parts = [str(self.params.get("OutputS3KeyPrefix") or "").strip("/"), self.id, instance_id]
        tail = ["awsrunShellScript", "0.awsrunShellScript"]
        return "/".join([part for part in parts if part] + tail)
