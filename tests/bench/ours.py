"""Contestant: this toolkit's programs, run on given directories.

ours.py PROGRAM ROOT [HOSTLIST]

They run as their entry points run them. Only the paths differ from a head node, and they stay in
the foreground. Prints their own CPU seconds and peak memory, without those of their scontrol calls.
"""

# ruff: noqa: E402 - a script has to find the repository before it imports from it
from __future__ import annotations

import dataclasses
import gc
import json
import os
import resource
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurmplugins.config import paths
from slurmplugins.head.assemble import assemble
from slurmplugins.model.hostlist import expand
from slurmplugins.model.instance import EndCause
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from slurmplugins.slurm import resume_file
from slurmplugins.system.program import open_log


def main() -> None:
    program, root = sys.argv[1], Path(sys.argv[2])
    hostlist = sys.argv[3] if len(sys.argv) > 3 else ""
    paths.BURST, paths.STATE = root / "burst.json", root / "state"  # type: ignore[misc]
    paths.LOGS = root / "logs"  # type: ignore[misc]
    log = open_log(program)
    engine = assemble(log)
    if program == "resume":
        content = Path(os.environ["SLURM_RESUME_FILE"]).read_bytes()
        resume(engine, resume_file.job_requests(content, hostlist))
    elif program == "suspend":
        suspend(engine, expand(hostlist), EndCause.SUSPEND)
    else:
        gc.disable()  # as the program's entry point does
        store = Nowhere() if program == "reconcile-unwritten" else engine.store
        run_pass(dataclasses.replace(engine, store=store))
    used = resource.getrusage(resource.RUSAGE_SELF)
    sys.stdout.write(json.dumps({"cpu": used.ru_utime + used.ru_stime, "peak_mb": peak_mb()}))


class Nowhere:
    """A ledger that accepts every object and keeps none.

    So reconcile records each instance as written, and nothing is counted for it.
    """

    def create(self, _key: str, _value: object) -> bool:
        return True

    def put(self, _key: str, _value: object) -> None:
        return

    def get(self, _key: str) -> None:
        return None


def peak_mb() -> float:
    """Return the process's own peak memory.

    ru_maxrss would count the parent's before exec.
    """
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
