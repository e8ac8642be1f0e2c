"""Hand the site's nodes on to the site's own power-save program.

On a controller that we joined, slurmctld knows one ResumeProgram and one SuspendProgram: ours. What
is not our node goes to the program that the site had. This process becomes that program. So its
exit code, its time and its end by slurmctld are as before the join. Our own work goes on in another
process, and nothing of AWS is loaded before.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths, site
from slurmplugins.errors import ConfigError
from slurmplugins.model import site_nodes
from slurmplugins.system import daemonize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from slurmplugins.config.site import SiteConfig

RESUME_FILE: Final = "SLURM_RESUME_FILE"
KEPT_SECONDS: Final = 600.0
"""A filtered resume file stays for so long. slurmctld's own is gone after about ten seconds."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of slurmctld's, divided."""

    own_nodes: str
    """The hostlist of our nodes; empty if there are none."""
    site_nodes: str = ""
    program: str = ""
    """The site's program; empty if it has none."""
    arguments: tuple[str, ...] = ()
    """Further arguments than the hostlist."""
    resume_file: bytes | None = None
    """The resume file with the site's nodes."""

    @property
    def is_ours(self) -> bool:
        """Return whether the site has no node in it."""
        return not self.site_nodes

    @property
    def goes_on(self) -> bool:
        """Return whether the site's program has nodes to work on."""
        return bool(self.program and self.site_nodes)


def go_on(name: str, argv: Sequence[str], resume_file: bytes | None) -> str:
    """Return our nodes, in a background process.

    The calling process becomes the site's program, or exits. Where only the site's nodes are
    called, there is no background process.
    """
    call = read(name, argv, resume_file)
    if call.is_ours:
        if not daemonize.fork_to_background():
            daemonize.exit_without_cleanup(0)
    elif not call.own_nodes or not daemonize.fork_detached():
        daemonize.exit_without_cleanup(become(call, name))
    return call.own_nodes


def divide(
    name: str, argv: Sequence[str], resume_file: bytes | None, config: SiteConfig | None
) -> Call:
    """Divide a call; `name` is our program's, `argv` is without it. Pure."""
    hostlist = argv[0] if argv else ""
    if config is None:
        return Call(hostlist)
    own, others = site_nodes.divide(hostlist, config.nodes)
    return Call(
        own,
        others,
        config.programs.get(name, ""),
        tuple(argv[1:]),
        site_nodes.sites_resume_file(resume_file, config.nodes),
    )


def read(name: str, argv: Sequence[str], resume_file: bytes | None) -> Call:
    """Divide a call by this controller's site.json.

    A site.json that can't be used leaves all nodes to us, and the log says so. The site's program
    is then not known either.
    """
    try:
        return divide(name, argv, resume_file, site.load())
    except ConfigError as error:
        from slurmplugins.system.log_events import LogEvent
        from slurmplugins.system.program import open_log

        open_log(name).failure(LogEvent.NODES_NOT_HANDED_ON, message=error.message)
        return Call(argv[0] if argv else "")


def become(call: Call, name: str) -> int:
    """Become the site's program, if it has nodes; else return 0.

    Returns 127 if the program can't be started, as a shell does.
    """
    if not call.goes_on:
        return 0
    environment = _environment(call, os.environ)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and exec would keep that
    argv = [call.program, call.site_nodes, *call.arguments]
    try:
        os.execve(call.program, argv, environment)  # noqa: S606 - the site's own setting
    except (OSError, ValueError) as error:
        from slurmplugins.system.log_events import LogEvent
        from slurmplugins.system.program import open_log

        log = open_log(name)
        log.failure(
            LogEvent.NODES_NOT_HANDED_ON,
            message=f"{call.program}: {error}",
            nodes=call.site_nodes,
        )
        return 127


def _environment(call: Call, environment: Mapping[str, str]) -> dict[str, str]:
    """Return slurmctld's environment, with a resume file of the site's nodes."""
    own = dict(environment)
    if RESUME_FILE not in own:
        return own
    path = _write_resume_file(call.resume_file, paths.RESUME_FILES)
    if path is None:
        del own[RESUME_FILE]  # the argument names the same nodes
    else:
        own[RESUME_FILE] = str(path)
    return own


def _write_resume_file(content: bytes | None, folder: Path) -> Path | None:
    """Write the file under a new name, and remove old ones.

    Returns None if it can't be written.
    """
    if content is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        oldest = time.time() - KEPT_SECONDS
        for old in folder.iterdir():
            if old.stat().st_mtime < oldest:
                old.unlink(missing_ok=True)
        path = folder / f"{secrets.token_hex(8)}.json"
        path.write_bytes(content)
    except OSError:
        return None
    return path
