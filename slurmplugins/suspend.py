"""SuspendProgram: terminate the instances of nodes that Slurm powered down, and verify it."""

from __future__ import annotations

import sys


def main() -> None:
    terminate_instances("suspend", sys.argv[1] if len(sys.argv) > 1 else "", "suspend")


def terminate_instances(program: str, hostlist: str, cause: str) -> None:
    """Terminate these nodes' instances in the background.

    resume_fail uses it too, with another cause.
    """
    from slurmplugins.system import daemonize

    if not daemonize.fork_to_background():
        daemonize.exit_without_cleanup(0)
    from slurmplugins.head.assemble import assemble
    from slurmplugins.model.hostlist import MAX_EXPANSION, expand
    from slurmplugins.model.instance import EndCause
    from slurmplugins.power_save.suspend import suspend
    from slurmplugins.system.log_events import LogEvent
    from slurmplugins.system.program import open_log, run_to_exit_code

    log = open_log(program)

    def work() -> None:
        log.info(LogEvent.PROGRAM_STARTED, nodes=hostlist)
        invalid_names: list[str] = []
        nodes = expand(hostlist, invalid_names=invalid_names)
        if invalid_names:
            log.warning(LogEvent.NODE_NAMES_REJECTED, parts=invalid_names, most=MAX_EXPANSION)
        suspend(assemble(log), nodes, EndCause(cause))

    daemonize.exit_without_cleanup(run_to_exit_code(log, work))


if __name__ == "__main__":
    main()
