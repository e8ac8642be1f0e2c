"""How far a playbook is, from what ansible-playbook prints."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final

from slurmplugins import safe_json

TAIL: Final = 30
LONGEST: Final = 500

_TASK: Final = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(?:([^\]:]+) : )?(.+?)\] \*")
_PLAY: Final = re.compile(r"^PLAY \[(.*?)\] \*")
_FAILED: Final = re.compile(r"^(?:fatal|failed): \[[^\]]*\](?:: \w+!)?.*? => (.*)$")
_LISTED: Final = re.compile(r"^ {6}\S.*TAGS: \[", re.MULTILINE)


class Progress:
    """Fed line by line. `error` is what the first failed task said that was not rescued."""

    def __init__(self) -> None:
        self.state = "running"
        self.phase = ""
        self.task = ""
        self.done = 0
        self.total = 0
        self.error = ""
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._started = False
        self._outline = ""

    def expect(self, listing: str) -> None:
        """The number of tasks, from ansible-playbook --list-tasks; includes are not counted."""
        self.total = len(_LISTED.findall(listing))

    def feed(self, line: str) -> None:
        text = line.rstrip("\n")
        if text.strip():
            self._tail.append(text[:LONGEST])
        if play := _PLAY.match(text):
            self.phase = play.group(1)
        elif task := _TASK.match(text):
            self.done += self._started
            self._started = True
            self.phase = task.group(1) or self.phase
            self.task = task.group(2)
            self.total = max(self.total, self.done + 1)
        elif text.startswith("...ignoring"):
            self.error = self._outline = ""
        elif failed := _FAILED.match(text):
            self.error = self.error or f"{self.task}: {_message(failed.group(1))}"[:2000]
        elif text.startswith(("ERROR!", "[ERROR]")):
            # Since 2.19 a failed task prints this before its result, which says more.
            self._outline = self._outline or text[:2000]

    def finish(self, status: int) -> None:
        """The playbook ended with this exit code."""
        self.state = "failed" if status else "ok"
        if not status:
            self.done = self.total
            self.error = ""
        elif not self.error:
            self.error = self._outline or f"ansible-playbook ended with {status}; see log_tail"

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "phase": self.phase,
            "task": self.task,
            "done": self.done,
            "total": self.total,
            "error": self.error,
            "log_tail": "\n".join(self._tail),
        }


def _message(result: str) -> str:
    """What a person needs of a failed task's result."""
    try:
        value = safe_json.loads(result)
    except ValueError:
        return result
    if not isinstance(value, dict):
        return result
    parts = [str(value[key]).strip() for key in ("msg", "stderr", "reason") if value.get(key)]
    return "; ".join(dict.fromkeys(parts)) or result
