"""Commands on a site's controller: by OpenSSH, or right here. Always a list of arguments."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.join.errors import SiteCommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.config.site import Site

SHOWN: Final = 200
MAX_STDERR: Final = 2000
SYSTEM_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
SSH_FAILED: Final = 255
"""ssh's own exit code when it has no connection (ssh(1))."""


@dataclass(frozen=True, slots=True)
class ControllerRunner:
    """Runs commands as root on one controller."""

    host: str
    ssh: tuple[str, ...]
    """The argv before a command; empty: this computer is the controller."""

    def run(self, argv: Sequence[str], *, timeout: float = 60, stdin: bytes = b"") -> str:
        """Run one argv and return its standard output.

        Raises SiteCommandFailed for any exit code but 0, and when it takes too long.
        """
        # ssh joins its arguments with spaces, and a shell on the other side reads them.
        remote = [word.replace("{host}", self.host) for word in self.ssh]
        words = [*remote, shlex.join(argv)] if remote else list(argv)
        shown = shlex.join(argv)[:SHOWN]
        try:
            done = subprocess.run(
                words, input=stdin, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SiteCommandFailed(
                f"{self.host}: {shown} took longer than {timeout:.0f} s"
            ) from error
        except OSError as error:
            raise SiteCommandFailed(f"{words[0]} can't be run: {error.strerror}") from error
        stdout, stderr = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
        if done.returncode:
            text = (stderr or stdout).strip()[-MAX_STDERR:]
            if remote and done.returncode == SSH_FAILED:
                text += f" (is `{shlex.join(remote)} true` possible without a password?)"
            raise SiteCommandFailed(
                f"{self.host}: {shown}: exit code {done.returncode}: {text}",
                returncode=done.returncode,
                stdout=stdout,
                stderr=stderr,
            )
        return stdout


def controllers(site: Site) -> tuple[ControllerRunner, ...]:
    """Return a runner for each controller, primary first."""
    return tuple(ControllerRunner(host, site.ssh) for host in site.controllers)


@dataclass(frozen=True, slots=True)
class FirstController:
    """Runs commands on the first controller that can be reached."""

    site: Site

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        """Run one argv and return its standard output.

        A program without a folder is looked for in the site's slurm_bin too. Raises
        SiteCommandFailed of the first controller if none can be reached.
        """
        if "/" not in argv[0]:
            argv = ["/usr/bin/env", f"PATH={self.site.slurm_bin}:{SYSTEM_PATH}", *argv]
        failure: SiteCommandFailed | None = None
        for runner in controllers(self.site):
            try:
                return runner.run(argv, timeout=timeout)
            except SiteCommandFailed as error:
                if error.returncode not in {-1, SSH_FAILED}:
                    raise
                failure = failure or error
        raise failure or SiteCommandFailed("cluster.yaml names no controller")
