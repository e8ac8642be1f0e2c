"""A person's computer, with ssh and her keys."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.slurm.conftest import TOOLKIT, toolkit
from tests.slurm.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = "Permission denied (publickey)"


def environment() -> dict[str, str]:
    """Return an environment in which ssh's ProxyCommand finds the toolkit."""
    return {**os.environ, "PATH": f"{TOOLKIT.parent}:{os.environ['PATH']}"}


@dataclass(frozen=True)
class Ssh:
    """A person's computer: an ssh configuration and keys."""

    folder: Path

    def argv(self, *words: str, user: str = "ada", key: Path | None = None) -> list[str]:
        """Return ssh's argv; without a key, the person has none."""
        identity = ["-i", str(key)] if key else ["-i", "/dev/null"]
        options = ("BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes")
        return [
            *("ssh", "-F", str(self.folder / "config"), *identity, "-l", user),
            *(word for option in options for word in ("-o", option)),
            *("-o", f"UserKnownHostsFile={self.folder / 'known_hosts'}", *words),
        ]

    def run(self, *words: str, **who) -> subprocess.CompletedProcess[str]:
        """Run a command on a login node, or else on the head."""
        return subprocess.run(
            self.argv("judge", *words, **who),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment(),
        )


def computer(config: Path, folder: Path) -> Ssh:
    """Return a computer with what `toolkit login --ssh-config` prints."""
    text = toolkit("login", "--config", str(config), "--ssh-config", "--as", "ada").stdout
    (folder / "config").write_text(text)
    (folder / "known_hosts").write_text(f"{text.splitlines()[-1].removeprefix('# ')}\n")
    return Ssh(folder)
