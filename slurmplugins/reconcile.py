"""The program that makes both worlds agree; a systemd timer runs it as user slurm.

slurm-reconcile           one pass
slurm-reconcile --plan    print what a pass would do, as JSON, and do nothing
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from typing import Any

from slurmplugins.head.assemble import assemble
from slurmplugins.model.actions import Drain, MarkDown, RequestStop, Terminate
from slurmplugins.reconciler import rules, snapshot
from slurmplugins.reconciler.pass_state import Memory
from slurmplugins.reconciler.run import read_snapshot, run_pass
from slurmplugins.system import files, program


def main() -> None:
    log = program.logger("reconcile")
    dry = "--plan" in sys.argv[1:]

    def work() -> None:
        # One pass and the process ends: looking for garbage costs a third of it, and finds none.
        gc.disable()
        engine = assemble(log)
        if dry:
            plan = rules.plan(read_snapshot(engine, Memory.load(engine.state)))
            sys.stdout.write(json.dumps(printable(plan), indent=2) + "\n")
            return
        with contextlib.ExitStack() as held:
            free = True
            with contextlib.suppress(OSError):  # where it can't be written, by nobody else either
                free = held.enter_context(files.locked(engine.state / "reconcile.lock", wait=False))
            if free:
                run_pass(engine)

    sys.exit(program.guarded(log, work))


def printable(plan: snapshot.Plan) -> dict[str, Any]:
    """The plan as JSON has it."""
    return {
        "note": plan.note,
        "remarks": list(plan.remarks),
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
