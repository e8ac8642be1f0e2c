"""The status object that an instance writes while its playbook runs, and shared phases."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.output import Phase

LOG_LINES_SHOWN = 25


@dataclass(frozen=True, slots=True)
class BootStatus:
    """The progress of an instance's playbook, as slurmplugins.head_boot writes it."""

    state: str
    task: str
    done: int
    total: int
    error: str
    log_tail: str
    bundle: str  # hash of the bundle it is set up from
    at: float  # epoch seconds

    @classmethod
    def parse(cls, value: Mapping[str, Any] | None) -> BootStatus | None:
        """Read the object; None when there is none."""
        if value is None:
            return None
        return cls(
            state=str(value.get("state", "")),
            task=str(value.get("task") or value.get("phase") or ""),
            done=int(value.get("done") or 0),
            total=int(value.get("total") or 0),
            error=str(value.get("error") or ""),
            log_tail=_text(value.get("log_tail")),
            bundle=str(value.get("bundle") or ""),
            at=float(value.get("at") or 0),
        )

    @property
    def failure(self) -> str:
        """Return the error, with the end of the log."""
        tail = "\n".join(f"  {line}" for line in self.log_tail.splitlines()[-LOG_LINES_SHOWN:])
        step = f" in '{self.task}'" if self.task else ""
        return f"the playbook failed{step}: {self.error}\n{tail}".rstrip()


def _text(value: object) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value or "")


class SharedPhase:
    """A phase shown for several operations that run at the same time."""

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}

    def operation(self, name: str) -> Phase:
        """Return the phase of one operation."""
        return _OperationPhase(self, name)

    def show(self, name: str, text: str) -> None:
        """Show an operation's progress beside the others'."""
        with self._lock:
            self._texts[name] = text
            self._phase.update(
                "  ·  ".join(f"{key}: {progress}" for key, progress in self._texts.items())
            )


class _OperationPhase:
    def __init__(self, shared: SharedPhase, name: str) -> None:
        self._shared_phase = shared
        self._name = name

    def update(self, detail: str, *, done: int = 0, total: int = 0) -> None:
        self._shared_phase.show(self._name, f"[{done}/{total}] {detail}" if total else detail)

    def result(self, text: str) -> None:
        self._shared_phase.show(self._name, text)
