"""Let waiting jobs of racks burst, or keep them; a systemd timer runs this program as slurm.

slurm-govern           One pass.
slurm-govern --plan    Print the decisions of a pass as JSON, and change nothing.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmplugins.config import burst, governor as governor_config, paths
from slurmplugins.governor import spending_file
from slurmplugins.governor.plan import QueueSnapshot, plan
from slurmplugins.governor.run import printable, read_snapshot, run_pass
from slurmplugins.head.assemble import check_cluster
from slurmplugins.head.in_charge import is_in_charge
from slurmplugins.slurm.queue import Queue
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system import files, program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner

if TYPE_CHECKING:
    from slurmplugins.config.governor import GovernorConfig


def main() -> None:
    log = program.open_log("govern")
    plan_only = "--plan" in sys.argv[1:]

    def work() -> None:
        config, rules = burst.load(paths.BURST), governor_config.load(paths.BURST)
        check_cluster(config.slurm_cluster or config.cluster, paths.SLURM_CONF)
        runner, now = SystemRunner(), SystemClock().now()
        queue = Queue(runner, config.slurm_bin)
        if plan_only:
            snapshot = QueueSnapshot(now, rules, (), {})
            if rules.rules:
                snapshot = read_snapshot(queue, config, rules, paths.STATE, now)
            sys.stdout.write(json.dumps(printable(plan(snapshot), snapshot), indent=2) + "\n")
            return
        if not has_work(rules) or not is_in_charge(log):
            return
        with contextlib.ExitStack() as stack:
            if stack.enter_context(
                files.locked(Path(rules.folder, spending_file.LOCK), wait=False)
            ):
                snapshot = read_snapshot(queue, config, rules, paths.STATE, now)
                slurm = ScontrolSlurm(runner, config.slurm_bin, log=log)
                run_pass(snapshot, queue, slurm, log)

    sys.exit(program.run_to_exit_code(log, work))


def has_work(rules: GovernorConfig) -> bool:
    """Return whether a pass may change anything.

    Without a rule, it takes the cloud away from jobs of the rules that were. A cluster without
    racks has no such job: then Slurm is asked nothing.
    """
    if rules.rules:
        return True
    return bool(rules.folder) and bool(spending_file.load(Path(rules.folder)).bursts)


if __name__ == "__main__":
    main()
