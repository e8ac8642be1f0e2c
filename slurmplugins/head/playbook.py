"""Run a playbook and report its progress, read from the output of ansible-playbook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import paths
from slurmplugins.errors import CloudError
from slurmplugins.model import json_input
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from slurmplugins.cloud.stores import S3Store
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


TAIL_LINES: Final = 30
LONGEST_LINE: Final = 500

_TASK: Final = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(?:([^\]:]+) : )?(.+?)\] \*")
_PLAY: Final = re.compile(r"^PLAY \[(.*?)\] \*")
_FAILED: Final = re.compile(r"^(?:fatal|failed): \[[^\]]*\](?:: \w+!)?.*? => (.*)$")
_LISTED_TASK: Final = re.compile(r"^ {6}\S.*TAGS: \[", re.MULTILINE)

WRITE_INTERVAL: Final = 1.0
"""Seconds between two writes of the status object."""

ANSIBLE: Final = "/usr/bin/ansible-playbook"

_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_RETRY_FILES_ENABLED": "0",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    "PYTHONUNBUFFERED": "1",
}


class Progress:
    """The progress of a playbook, fed line by line."""

    def __init__(self) -> None:
        self.state = "running"
        self.phase = ""
        self.task = ""
        self.tasks_done = 0
        self.task_count = 0
        self.error = ""
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._task_started = False
        self._error_line = ""

    def count_tasks(self, listing: str) -> None:
        """Count the tasks in ansible-playbook --list-tasks.

        Tasks in dynamic includes are not counted.
        """
        self.task_count = len(_LISTED_TASK.findall(listing))

    def read_line(self, line: str) -> None:
        """Read a line of the output."""
        text = line.rstrip("\n")
        if text.strip():
            self._tail.append(text[:LONGEST_LINE])
        if play := _PLAY.match(text):
            self.phase = play.group(1)
        elif task := _TASK.match(text):
            self.tasks_done += self._task_started
            self._task_started = True
            self.phase = task.group(1) or self.phase
            self.task = task.group(2)
            self.task_count = max(self.task_count, self.tasks_done + 1)
        elif text.startswith("...ignoring"):
            self.error = self._error_line = ""
        elif failure := _FAILED.match(text):
            self.error = self.error or f"{self.task}: {_message(failure.group(1))}"[:2000]
        elif text.startswith(("ERROR!", "[ERROR]")):
            # Ansible 2.19 and later print this line before a failed task's result, which says more.
            self._error_line = self._error_line or text[:2000]

    def finish(self, status: int) -> None:
        """Record that the playbook ended with this exit code."""
        self.state = "failed" if status else "ok"
        if not status:
            self.tasks_done = self.task_count
            self.error = ""
        elif not self.error:
            self.error = self._error_line or f"ansible-playbook ended with {status}; see log_tail"

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "phase": self.phase,
            "task": self.task,
            "done": self.tasks_done,
            "total": self.task_count,
            "error": self.error,
            "log_tail": "\n".join(self._tail),
        }


def _message(result: str) -> str:
    """Return the part of a failed task's result that people need."""
    try:
        value = json_input.loads(result)
    except ValueError:
        return result
    if not isinstance(value, dict):
        return result
    parts = [str(value[key]).strip() for key in ("msg", "stderr", "reason") if value.get(key)]
    return "; ".join(dict.fromkeys(parts)) or result


class Reporter:
    """Writes the status object, at most once per WRITE_INTERVAL. A failed write is not repeated."""

    def __init__(self, store: S3Store, key: str, bundle: str, clock: Clock, log: Log) -> None:
        self._store = store
        self._key = key
        self._bundle = bundle
        self._clock = clock
        self._log = log
        self._last_write = float("-inf")

    def write_progress(self, progress: Progress, *, force: bool = False) -> None:
        """Write the progress, unless it was written a moment ago."""
        if not force and self._clock.monotonic() - self._last_write < WRITE_INTERVAL:
            return
        self._last_write = self._clock.monotonic()
        now = self._clock.now()
        try:
            self._store.put(self._key, {**progress.to_json(), "at": now, "bundle": self._bundle})
        except CloudError as error:
            self._log.warning(
                LogEvent.BOOT_STATUS_NOT_WRITTEN, code=error.code, message=error.message
            )

    def write_log(self, text: str) -> None:
        """Write the whole log beside the status object."""
        try:
            self._store.put_text(self._key.removesuffix(".json") + ".log", text)
        except CloudError as error:
            self._log.warning(LogEvent.BOOT_LOG_NOT_WRITTEN, code=error.code, message=error.message)


def follow_output(lines: Iterable[str], progress: Progress, reporter: Reporter) -> str:
    """Feed the output to the progress, report it, and return it."""
    output: list[str] = []
    for line in lines:
        output.append(line)
        sys.stdout.write(line)
        sys.stdout.flush()
        progress.read_line(line)
        reporter.write_progress(progress)
    return "".join(output)


def playbook_command(playbook: Path, extra_vars: Sequence[str], *more_options: str) -> list[str]:
    """Return the command line of ansible-playbook."""
    argv = [ANSIBLE, "--inventory", "localhost,", "--connection", "local"]
    for item in extra_vars:
        argv += ["--extra-vars", item]
    return [*argv, *more_options, str(playbook)]


def _python_path(playbook: Path) -> str:
    """Return PYTHONPATH with the folder that gives Ansible's modules their bytecode."""
    folders = [str(playbook.parent.absolute() / "python"), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, folders))


def run_playbook(options: argparse.Namespace, reporter: Reporter) -> int:
    """Run the playbook and return its exit code.

    The last status is written before it returns. Raises OSError when the playbook can't be run.
    """
    playbook = options.playbook if options.playbook.exists() else Path("ansible") / options.playbook
    settings = str(playbook.parent.absolute() / "ansible.cfg")
    environment = {
        **os.environ,
        **_ENVIRONMENT,
        "ANSIBLE_CONFIG": settings,
        "PYTHONPATH": _python_path(playbook),
    }
    progress = Progress()
    reporter.write_progress(progress, force=True)
    listing = subprocess.run(
        playbook_command(playbook, options.extra_vars, "--list-tasks"),
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    progress.count_tasks(listing.stdout)
    with subprocess.Popen(
        playbook_command(playbook, options.extra_vars),
        env=environment, stdin=subprocess.DEVNULL, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        text = follow_output(process.stdout or (), progress, reporter)
        status = process.wait()
    paths.LOGS.mkdir(parents=True, exist_ok=True)
    (paths.LOGS / f"{playbook.stem}.log").write_text(text, encoding="utf-8")
    progress.finish(status)
    if status:
        reporter.write_log(text)
    reporter.write_progress(progress, force=True)
    return status
