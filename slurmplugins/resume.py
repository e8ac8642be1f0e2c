"""ResumeProgram: Slurm wants these nodes up.

slurmctld gives it no PATH and no HOME, throws its output away, deletes the resume file within
seconds and waits for it at shutdown. So: read the file at once, fork, exit 0; the work goes on in
a session of its own with its own log. Nothing but os and sys is imported before that.
"""

from __future__ import annotations

import os
import sys

_LARGEST = 64 * 1024 * 1024


def main() -> None:
    hostlist = sys.argv[1] if len(sys.argv) > 1 else ""
    content = _resume_file(os.environ.get("SLURM_RESUME_FILE"))
    from slurmplugins import detach

    if not detach.in_background():
        detach.leave(0)
    import gc

    gc.disable()  # nothing that is loaded and read up to the first call becomes garbage
    from slurmplugins import names, resume_file, runtime
    from slurmplugins.errors import ConfigError

    log = runtime.logger("resume")

    def work() -> None:
        odd: list[str] = []
        asks = resume_file.asks(content, hostlist, odd)
        log.info("called", nodes=hostlist, jobs=[ask.job for ask in asks if ask.job is not None])
        if odd:
            log.warning("not our nodes", parts=odd, most=names.MAX_EXPANSION)
        try:
            engine = runtime.assemble(log)
        except ConfigError as error:
            from slurmplugins import paths
            from slurmplugins.clock import SystemClock
            from slurmplugins.runner import SystemRunner
            from slurmplugins.slurm import ScontrolSlurm

            slurm = ScontrolSlurm(SystemRunner(), paths.SLURM_BIN)
            runtime.refuse(slurm, SystemClock(), log, asks, error)
            raise
        from slurmplugins import bursting

        gc.enable()
        bursting.resume(engine, asks)

    detach.leave(runtime.guarded(log, work))


def _resume_file(path: str | None) -> bytes | None:
    """The file's bytes; None where Slurm gave none or it is gone, and the argument must do."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would cost a third of the start
            return file.read(_LARGEST)
    except OSError:
        return None


if __name__ == "__main__":
    main()
