"""The state that reconcile keeps from pass to pass. Losing it only starts some graces anew."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurmplugins.errors import StateError
from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.json_input import finite, loads
from slurmplugins.reconciler import instance_ledger
from slurmplugins.reconciler.forgotten_nodes import Asked
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.reconciler.instance_ledger import LedgerEntry


@dataclass(frozen=True, slots=True)
class Memory:
    """The fields of Snapshot that are remembered (explained there), and the instances' lives."""

    unbacked: dict[NodeName, float] = field(default_factory=dict)
    ledger: dict[str, LedgerEntry] = field(default_factory=dict)
    doubted_since: float | None = None
    woken: dict[NodeName, float] = field(default_factory=dict)
    asked: dict[NodeName, Asked] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        """Return the instances that lived at the end of the last pass."""
        return frozenset(key for key, entry in self.ledger.items() if entry.ended_at is None)

    @classmethod
    def load(cls, state: Path) -> Memory:
        try:
            data: dict[str, Any] = loads((state / "reconcile.json").read_bytes())
            entries = {
                key: instance_ledger.from_json(value) for key, value in data["ledger"].items()
            }
            since = data.get("doubted_since")
            return cls(
                _times(data["unbacked"]),
                {key: entry for key, entry in entries.items() if entry is not None},
                None if since is None else finite(since),
                _times(data.get("woken", {})),
                {
                    NodeName(key): Asked(finite(first), finite(last))
                    for key, (first, last) in data.get("asked", {}).items()
                },
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def save(self, state: Path) -> None:
        value = {
            "unbacked": self.unbacked,
            "ledger": {key: instance_ledger.to_json(item) for key, item in self.ledger.items()},
            "doubted_since": self.doubted_since,
            "woken": self.woken,
            "asked": {key: (item.first, item.last) for key, item in self.asked.items()},
        }
        try:
            write_atomically(state / "reconcile.json", json.dumps(value).encode(), mode=0o640)
        except OSError as error:
            raise StateError(f"reconcile's memory can't be written: {error}") from error


@dataclass(frozen=True, slots=True)
class LastPass:
    """The last pass's result, for `toolkit status`."""

    at: float = 0.0
    note: str = ""
    """Why the pass did nothing; empty if it did its work."""
    remarks: tuple[str, ...] = ()
    """Facts for people about nodes and instances that are left alone."""

    @classmethod
    def load(cls, state: Path) -> LastPass:
        try:
            data = loads((state / "pass.json").read_bytes())
            return cls(finite(data["at"]), str(data["note"]), tuple(map(str, data["remarks"])))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def save(self, state: Path) -> None:
        value = {"at": self.at, "note": self.note, "remarks": self.remarks}
        with contextlib.suppress(OSError):  # people's comfort: no reason to stop a pass
            write_atomically(state / "pass.json", json.dumps(value).encode(), mode=0o640)


def _times(value: dict[str, Any]) -> dict[NodeName, float]:
    return {NodeName(key): finite(moment) for key, moment in value.items()}
