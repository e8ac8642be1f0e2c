"""Make Slurm and EC2 agree; a systemd timer runs this program as user slurm.

slurm-reconcile           One pass.
slurm-reconcile --plan    Print the plan of a pass as JSON, and change nothing.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from typing import TYPE_CHECKING, Any

from slurmplugins.head.assemble import assemble
from slurmplugins.head.in_charge import is_in_charge
from slurmplugins.model.actions import Drain, MarkDown, RequestStop, Terminate
from slurmplugins.reconciler import rules
from slurmplugins.reconciler.pass_state import PassState
from slurmplugins.reconciler.run import read_snapshot, run_pass
from slurmplugins.system import files, program

if TYPE_CHECKING:
    from slurmplugins.reconciler.snapshot import Plan


def main() -> None:
    log = program.open_log("reconcile")
    plan_only = "--plan" in sys.argv[1:]

    def work() -> None:
        # The process ends after one pass: garbage collection takes a third of it, and finds none.
        gc.disable()
        engine = assemble(log)
        if plan_only:
            plan = rules.plan(read_snapshot(engine, PassState.load(engine.state)))
            sys.stdout.write(json.dumps(printable(plan), indent=2) + "\n")
            return
        with contextlib.ExitStack() as stack:
            if not is_in_charge(log):
                return
            lock_is_free = True
            with contextlib.suppress(OSError):  # an unwritable lock is held by no other pass either
                lock_is_free = stack.enter_context(
                    files.locked(engine.state / "reconcile.lock", wait=False)
                )
            if lock_is_free:
                run_pass(engine)

    sys.exit(program.run_to_exit_code(log, work))


def printable(plan: Plan) -> dict[str, Any]:
    """Return the plan as values for JSON."""
    return {
        "note": plan.blocked_by,
        "remarks": list(plan.warnings),
        "actions": [
            {
                "action": type(item).__name__,
                "node": item.instance.node if isinstance(item, Terminate) else item.node,
                "instance": item.instance.id if isinstance(item, Terminate) else None,
                "why": item.reason
                if isinstance(item, MarkDown | Drain | RequestStop)
                else item.why,
            }
            for item in plan.actions
        ],
    }


if __name__ == "__main__":
    main()
