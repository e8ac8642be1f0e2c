"""The state that reconcile keeps from pass to pass. Losing it only starts some graces anew."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import StateError
from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.json_input import finite, loads
from slurmplugins.reconciler import instance_ledger
from slurmplugins.reconciler.snapshot import RegistrationRequests
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.reconciler.instance_ledger import LedgerEntry

PASS_AGE: Final = 300.0
"""Seconds. reconcile looks at EC2 every 15: without a pass, nobody knows what EC2 has."""


@dataclass(frozen=True, slots=True)
class PassState:
    """The fields of Snapshot that are remembered (explained there), and the instances' lives."""

    without_instance_since: dict[NodeName, float] = field(default_factory=dict)
    ledger: dict[str, LedgerEntry] = field(default_factory=dict)
    doubted_since: float | None = None
    last_power_up: dict[NodeName, float] = field(default_factory=dict)
    registration_requests: dict[NodeName, RegistrationRequests] = field(default_factory=dict)

    @property
    def known_instances(self) -> frozenset[str]:
        """Return the instances that lived at the end of the last pass."""
        return frozenset(key for key, entry in self.ledger.items() if entry.ended_at is None)

    @classmethod
    def load(cls, state: Path) -> PassState:
        try:
            data: dict[str, Any] = loads((state / "reconcile.json").read_bytes())
            entries = {
                key: instance_ledger.from_json(value) for key, value in data["ledger"].items()
            }
            doubted_since = data.get("doubted_since")
            return cls(
                _times(data["unbacked"]),
                {key: entry for key, entry in entries.items() if entry is not None},
                None if doubted_since is None else finite(doubted_since),
                _times(data.get("woken", {})),
                {
                    NodeName(key): RegistrationRequests(finite(first_request), finite(last_request))
                    for key, (first_request, last_request) in data.get("asked", {}).items()
                },
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def save(self, state: Path) -> None:
        value = {
            "unbacked": self.without_instance_since,
            "ledger": {key: instance_ledger.to_json(item) for key, item in self.ledger.items()},
            "doubted_since": self.doubted_since,
            "woken": self.last_power_up,
            "asked": {
                key: (item.first, item.last) for key, item in self.registration_requests.items()
            },
        }
        try:
            write_atomically(state / "reconcile.json", json.dumps(value).encode(), mode=0o640)
        except OSError as error:
            raise StateError(f"reconcile's state can't be written: {error}") from error


@dataclass(frozen=True, slots=True)
class LastPass:
    """The last pass's result, for `toolkit status`."""

    at: float = 0.0
    blocked_by: str = ""
    """Why the pass did nothing; empty if it did its work."""
    warnings: tuple[str, ...] = ()
    """For people: nodes and instances to which nothing was done, and why."""

    @classmethod
    def load(cls, state: Path) -> LastPass:
        try:
            data = loads((state / "pass.json").read_bytes())
            return cls(finite(data["at"]), str(data["note"]), tuple(map(str, data["remarks"])))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def save(self, state: Path) -> None:
        value = {"at": self.at, "note": self.blocked_by, "remarks": self.warnings}
        with contextlib.suppress(OSError):  # people's comfort: no reason to stop a pass
            write_atomically(state / "pass.json", json.dumps(value).encode(), mode=0o640)


@dataclass(frozen=True, slots=True)
class LedgerPass:
    """The last pass that brought the ledger up to date with EC2.

    LastPass is written before the ledger, and also by a pass that could read nothing.
    """

    at: float = 0.0
    boot: str = ""
    """The head's boot. Before another one, instances may have ended with nobody looking."""

    @classmethod
    def load(cls, state: Path) -> LedgerPass:
        try:
            data = loads((state / "ledger_pass.json").read_bytes())
            return cls(finite(data["at"]), str(data["boot"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def save(self, state: Path) -> None:
        value = json.dumps({"at": self.at, "boot": self.boot})
        with contextlib.suppress(OSError):  # the ledger then counts as old, and budgets say so
            write_atomically(state / "ledger_pass.json", value.encode(), mode=0o640)

    def stale_reason(self, now: float, boot: str) -> str:
        """Return why instances may have ended unnoticed.

        Empty if the ledger is up to date.
        """
        if self.boot != boot:
            return "reconcile has not looked at EC2 since the head's start"
        if now - self.at > PASS_AGE:
            return f"reconcile has not looked at EC2 for {now - self.at:.0f} s"
        return ""


def _times(value: dict[str, Any]) -> dict[NodeName, float]:
    return {NodeName(key): finite(moment) for key, moment in value.items()}
