"""SuspendProgram: terminate the instances of nodes that Slurm powered down, and verify it."""

from __future__ import annotations

import sys


def main() -> None:
    end_machines("suspend", sys.argv[1] if len(sys.argv) > 1 else "", "suspend")


def end_machines(program: str, hostlist: str, cause: str) -> None:
    """Terminate these nodes' instances in the background.

    resume_fail uses it too, with another cause.
    """
    from slurmplugins.system import daemonize

    if not daemonize.in_background():
        daemonize.leave(0)
    from slurmplugins.head.assemble import assemble
    from slurmplugins.model.hostlist import MAX_EXPANSION, expand
    from slurmplugins.model.instance import EndCause
    from slurmplugins.power_save.suspend import suspend
    from slurmplugins.system.program import guarded, logger

    log = logger(program)

    def work() -> None:
        log.info("called", nodes=hostlist)
        odd: list[str] = []
        nodes = expand(hostlist, odd=odd)
        if odd:
            log.warning("not our nodes", parts=odd, most=MAX_EXPANSION)
        suspend(assemble(log), nodes, EndCause(cause))

    daemonize.leave(guarded(log, work))


if __name__ == "__main__":
    main()
