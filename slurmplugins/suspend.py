"""SuspendProgram: Slurm has let go of these nodes; their machines end now, verified."""

from __future__ import annotations

import sys


def main() -> None:
    end_machines("suspend", sys.argv[1] if len(sys.argv) > 1 else "", "suspend")


def end_machines(program: str, hostlist: str, cause: str) -> None:
    """Shared with resume_fail, which differs only in why the machines end."""
    from slurmplugins import detach

    if not detach.in_background():
        detach.leave(0)
    from slurmplugins import bursting, names, runtime
    from slurmplugins.model import EndCause

    log = runtime.logger(program)

    def work() -> None:
        log.info("called", nodes=hostlist)
        odd: list[str] = []
        nodes = names.expand(hostlist, odd=odd)
        if odd:
            log.warning("not our nodes", parts=odd, most=names.MAX_EXPANSION)
        bursting.suspend(runtime.assemble(log), nodes, EndCause(cause))

    detach.leave(runtime.guarded(log, work))


if __name__ == "__main__":
    main()
