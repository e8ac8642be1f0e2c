"""The journal's lines of the kernel, of systemd, and of the cluster's own services.

Users can write to the journal too: by logger(1), and on a node from inside slurmd's unit. journald
itself fills in the fields that begin with an underscore (systemd.journal-fields(7)), so no user's
line passes for another's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.logs.line_time import NEWEST, OLDEST
from slurmplugins.logs.source import MOST_LINE
from slurmplugins.model.json_input import loads
from slurmplugins.model.log_line import LogLine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import OutputStream

UNITS: Final = tuple(
    f"{name}.service"
    for name in (
        *("slurmctld", "slurmdbd", "slurmd", "mariadb", "slurm-sshd", "slurm-imds-access"),
        *("slurm-reconcile", "slurm-govern", "slurm-budget", "slurm-runs", "slurm-heartbeat"),
        *("slurm-prices", "slurm-mlflow-credentials"),
        *("slurm-node-boot", "slurm-node-agent", "slurm-node-credentials", "slurm-node-ident"),
        "slurm-log-shipper",
    )
)
"""MLflow and Optuna are left out: their lines are their users' requests."""

FIELDS: Final = "MESSAGE,PRIORITY,_UID,_PID,_SYSTEMD_UNIT,_TRANSPORT"

NOTICE: Final = 5
"""The least important level of the kernel and of systemd that is sent (syslog(3)).

systemd reports each start of reconcile at the next lower one.
"""

SYSTEM_UIDS: Final = (range(1000), range(64000, 65000))
"""Uids of the system's own accounts (Debian Policy, "UID and GID classes"). Slurm's is 64030.

All others are refused, also those that containers of users have.
"""

NO_UID: Final = -1

RESTART_SECONDS: Final = 10.0
"""Seconds between two starts of journalctl, which should not end at all."""


class Journal:
    """A `Source` that follows journalctl. Unread lines wait in the journal, and in a pipe."""

    key = "journal"

    def __init__(
        self, start: Callable[[Sequence[str]], OutputStream], clock: Clock, position: str = ""
    ) -> None:
        self._start = start
        self._clock = clock
        self.position = position
        self.has_more = False
        self._cursor = position
        self._rest = b""
        self._lines: tuple[LogLine, ...] = ()
        self._output: OutputStream | None = None
        self._started_at = float("-inf")

    def read(self, most_bytes: int, *, last: bool = False) -> tuple[LogLine, ...]:
        del last  # journald writes whole lines only
        self.has_more = False
        if not self._lines and (output := self._running()) is not None:
            content = output.read(most_bytes)
            self.has_more = len(content) > most_bytes // 4  # journalctl fills its pipe again
            *records, self._rest = (self._rest + content).split(b"\n")
            self._lines = tuple(filter(None, map(self._line, records)))
            if len(self._rest) > most_bytes:
                self._rest = b""  # no record: journalctl cuts fields at 4096 bytes
        return self._lines

    def accept(self) -> None:
        self._lines, self.position = (), self._cursor

    def close(self) -> None:
        """End journalctl."""
        if self._output is not None:
            self._output.close()
            self._output = None

    def _running(self) -> OutputStream | None:
        """Return journalctl's output; start it anew when it has ended."""
        if self._output is not None and not self._output.has_ended():
            return self._output
        if self._clock.monotonic() - self._started_at < RESTART_SECONDS:
            return None
        self.close()
        self._rest, self._started_at = b"", self._clock.monotonic()
        self._output = self._start(arguments(self._cursor))
        return self._output

    def _line(self, text: bytes) -> LogLine | None:
        try:
            record = loads(text)
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        self._cursor = str(record.get("__CURSOR") or self._cursor)
        return line_of(record, self._clock.now())


def arguments(cursor: str) -> list[str]:
    """Return the argv of journalctl.

    Without a cursor it begins at this boot.
    """
    begin = [f"--after-cursor={cursor}"] if cursor else ["--boot"]
    matches = [f"_SYSTEMD_UNIT={unit}" for unit in UNITS]
    return [
        *("/usr/bin/journalctl", "--follow", "--no-tail", "--quiet", "--output=json"),
        f"--output-fields={FIELDS}",
        *begin,
        *("_TRANSPORT=kernel", "+", "_PID=1", "+", *matches),
    ]


def line_of(record: dict[str, Any], now: float) -> LogLine | None:
    """Return a record's line, None if it is not sent."""
    text = _text(record.get("MESSAGE"))
    unit = _unit(record)
    if not text.strip() or not unit:
        return None
    stamp = str(record.get("__REALTIME_TIMESTAMP", ""))
    at = int(stamp) / 1e6 if stamp.isdecimal() else now
    return LogLine(min(max(at, now - OLDEST), now + NEWEST), unit, text[:MOST_LINE])


def _unit(record: dict[str, Any]) -> str:
    """Return the unit of a record; empty if it is not sent."""
    is_important = _number(record.get("PRIORITY"), NOTICE) <= NOTICE
    if record.get("_TRANSPORT") == "kernel":
        return "kernel" if is_important else ""
    if not _is_of_the_system(_number(record.get("_UID"), NO_UID)):
        return ""
    if record.get("_PID") == "1":
        return "systemd" if is_important else ""
    unit = str(record.get("_SYSTEMD_UNIT"))
    return unit.removesuffix(".service") if unit in UNITS else ""


def _text(message: object) -> str:
    """Return a message as text.

    It is a list of numbers if it has unprintable bytes.
    """
    if isinstance(message, list):
        codes = [code for code in message if isinstance(code, int) and 0 <= code < 256]  # noqa: PLR2004 - a byte
        message = bytes(codes).decode("utf-8", errors="replace")
    return message.replace("\n", " ") if isinstance(message, str) else ""


def _number(value: object, default: int) -> int:
    return int(value) if isinstance(value, str) and value.isdecimal() else default


def _is_of_the_system(uid: int) -> bool:
    return any(uid in uids for uids in SYSTEM_UIDS)
