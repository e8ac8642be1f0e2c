"""A systemd timer of the user that writes last month's statements each day.

People's commands run on an admin's computer, which has their store; the head has neither. So the
timer is a user's, and `loginctl enable-linger` lets it run without a session.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.system.files import write_text
from toolkit.statements.errors import StatementsError

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "toolkit-statements"
CLOSING: Final = "toolkit-usage-close"
START: Final = f"systemctl --user enable --now {NAME}.timer"

_CLOSING: Final = """\
[Unit]
Description=Close past days of the cluster's usage

[Service]
Type=oneshot
Environment={environment}
ExecStart={close}
"""
# Statements need no AWS: they are written also where the closing fails, which its own unit shows.
_SERVICE: Final = f"""\
[Unit]
Description=Write last month's statements
Wants={CLOSING}.service
After={CLOSING}.service

[Service]
Type=oneshot
Environment={{environment}}
ExecStart={{statement}}
"""
_TIMER: Final = """\
[Unit]
Description=Each day: close past days, and write last month's statements

[Timer]
OnCalendar=*-*-* 06:00:00 UTC
RandomizedDelaySec=15min
Persistent=true

[Install]
WantedBy=timers.target
"""


def units(config: Path, folder: Path) -> dict[str, str]:
    """Return the content of the units, by name."""
    program = (sys.executable, "-c", "from toolkit.cli import main; main()")
    where = ("--config", str(config.resolve()))
    close = (*program, "usage", "close", *where)
    statement = (*program, "statement", *where, "--period", "last-month")
    variables = {
        name: value
        for name in ("TOOLKIT_USAGE_STORE", "TOOLKIT_BILLS", "AWS_PROFILE")
        if (value := os.environ.get(name))
    }
    assignments = " ".join(_quoted(f"{name}={value}") for name, value in variables.items())
    return {
        f"{CLOSING}.service": _CLOSING.format(environment=assignments, close=_line(close)),
        f"{NAME}.service": _SERVICE.format(
            environment=assignments,
            statement=_line((*statement, "--out", str(folder.resolve()))),
        ),
        f"{NAME}.timer": _TIMER,
    }


def user_folder() -> Path:
    """Return the folder of the user's units."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd" / "user"


def write(path: Path, content: str) -> None:
    """Write a unit. Raises StatementsError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, content)
    except OSError as error:
        raise StatementsError(f"can't write {path}: {error.strerror}") from error


def _line(argv: Sequence[str]) -> str:
    """Return a command; a dollar sign alone would begin a variable there."""
    return " ".join(_quoted(word).replace("$", "$$") for word in argv)


def _quoted(word: str) -> str:
    """Return a word as systemd reads it back (systemd.syntax, quoting)."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
