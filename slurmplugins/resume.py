"""ResumeProgram: bring up the nodes that Slurm asks for.

slurmctld gives it no PATH and no HOME, and throws its output away. It deletes the resume file
within seconds and waits for the program at shutdown. So the program reads the file at once, forks
and exits with 0. The work goes on in a session of its own with its own log. Nothing but os and sys
is imported before the fork.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself is not imported before the fork
if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.errors import ConfigError
    from slurmplugins.model.launch import JobRequest
    from slurmplugins.system.logger import Log

_LARGEST = 64 * 1024 * 1024
_SITE = "/etc/slurm-toolkit/site.json"  # paths.SITE


def main() -> None:
    hostlist = sys.argv[1] if len(sys.argv) > 1 else ""
    content = _resume_file(os.environ.get("SLURM_RESUME_FILE"))
    from slurmplugins.system import daemonize

    if os.path.exists(_SITE):  # noqa: PTH110 - pathlib would cost a third of the start
        hostlist = _own_nodes(content)
    elif not daemonize.fork_to_background():
        daemonize.exit_without_cleanup(0)
    import gc

    gc.disable()  # nothing loaded or read before the first call becomes garbage
    from slurmplugins.errors import ConfigError
    from slurmplugins.head.assemble import assemble
    from slurmplugins.model.hostlist import MAX_EXPANSION
    from slurmplugins.slurm import resume_file
    from slurmplugins.system import program
    from slurmplugins.system.log_events import LogEvent

    log = program.open_log("resume")

    def work() -> None:
        invalid_names: list[str] = []
        job_requests = resume_file.job_requests(content, hostlist, invalid_names)
        log.info(
            LogEvent.PROGRAM_STARTED,
            nodes=hostlist,
            jobs=[job_request.job for job_request in job_requests if job_request.job is not None],
        )
        if invalid_names:
            log.warning(LogEvent.NODE_NAMES_REJECTED, parts=invalid_names, most=MAX_EXPANSION)
        try:
            engine = assemble(log)
        except ConfigError as error:
            _give_back(log, job_requests, error)
            raise
        from slurmplugins.power_save.resume import resume

        gc.enable()
        resume(engine, job_requests)

    daemonize.exit_without_cleanup(program.run_to_exit_code(log, work))


def _give_back(log: Log, job_requests: Sequence[JobRequest], error: ConfigError) -> None:
    """Give the nodes back to Slurm, without the configuration."""
    from slurmplugins.config import paths
    from slurmplugins.execution.down_nodes import give_back_without_engine
    from slurmplugins.slurm.scontrol import ScontrolSlurm
    from slurmplugins.system.clock import SystemClock
    from slurmplugins.system.command import SystemRunner

    slurm = ScontrolSlurm(SystemRunner(), paths.SLURM_BIN)
    give_back_without_engine(slurm, SystemClock(), log, job_requests, error)


def _own_nodes(content: bytes | None) -> str:
    """Return our nodes, in a process of its own.

    This process becomes the site's program, or exits.
    """
    from slurmplugins.power_save import hand_on

    return hand_on.go_on("resume", sys.argv[1:], content)


def _resume_file(path: str | None) -> bytes | None:
    """Return the resume file's bytes; None without a readable file.

    Slurm gave none, or it is gone: the argument must then do.
    """
    if not path:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would cost a third of the start
            return file.read(_LARGEST)
    except OSError:
        return None


if __name__ == "__main__":
    main()
