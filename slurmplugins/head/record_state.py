"""The place that the records have reached: the program's memory, and its status for people.

`records.json` is on the data volume. Without it the program begins anew, and repeats are harmless.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.head import sacct_windows
from slurmplugins.head.sacct_windows import Place
from slurmplugins.model import records
from slurmplugins.model.json_input import finite, loads
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.cloud.port import ObjectStore

FILE: Final = "records.json"


@dataclass(frozen=True, slots=True)
class RecordState:
    """The places of the five kinds of records."""

    place: Place = field(default_factory=Place)
    instances: int | None = None
    """The time of the last page of instances."""
    next_price_day: int | None = None
    next_metric_day: int | None = None
    next_slurm_day: int | None = None
    """The next day of Slurm's own list of instances."""

    @classmethod
    def load(cls, folder: Path) -> RecordState:
        """Read the state; the beginning without a readable file."""
        try:
            data = loads((folder / FILE).read_bytes())
            return cls(
                sacct_windows.from_json(data["attempts"]),
                _second(data["instances"]),
                _second(data["next_price_day"]),
                _second(data.get("next_metric_day")),  # an earlier toolkit wrote none
                _second(data.get("next_slurm_day")),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def save(self, folder: Path) -> None:
        """Write the state. Raises OSError."""
        value = {
            "attempts": self.place.to_json(),
            "instances": self.instances,
            "next_price_day": self.next_price_day,
            "next_metric_day": self.next_metric_day,
            "next_slurm_day": self.next_slurm_day,
        }
        write_atomically(folder / FILE, json.dumps(value).encode(), mode=0o640)


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """The object by which `toolkit status` learns how far the records reach."""

    store: ObjectStore

    def write(self, state: RecordState, error: str, now: float) -> None:
        """Tell how far each kind reaches. Raises CloudError."""
        has_run = state.place.moment is not None
        value: dict[str, Any] = {
            "attempts": state.place.read if has_run else None,
            "settled": state.place.settled if has_run else None,
            "instances": state.instances,
            "error": error[:500],
            "at": now,
        }
        self.store.put(records.STATUS, value)


def _second(value: object) -> int | None:
    return None if value is None else int(finite(value))
