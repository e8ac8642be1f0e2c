"""SuspendProgram: terminate the instances of nodes that Slurm powered down, and verify it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> None:
    terminate_instances("suspend", sys.argv[1:], "suspend")


def terminate_instances(program: str, argv: Sequence[str], cause: str) -> None:
    """Terminate these nodes' instances in the background.

    resume_fail uses it too, with another cause. On a controller that we joined, the site's own
    program gets the nodes that are not ours.
    """
    from slurmplugins.power_save import hand_on
    from slurmplugins.system import daemonize

    hostlist = hand_on.go_on(program, argv, None)
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
