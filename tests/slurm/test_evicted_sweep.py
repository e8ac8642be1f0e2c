"""A sweep of 24 trials on eight spot machines, some of which are taken away."""

from __future__ import annotations

import json
import time

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(900)]
SCRIPT = "/shared/jobscripts/sweep/train.py"
SWEEP = "taken"
TRIALS = 24
NOTICES = (120.0, 1.0, 120.0)  # seconds: two that can be heard, one that can't
BETWEEN = 15.0  # seconds


def tasks(cluster, *states: str) -> list[str]:
    """The nodes of the sweep's tasks in those states; of all that are left without states."""
    asked = (f"--states={','.join(states)}",) if states else ()
    argv = ("squeue", "--noheader", "--array", "--user=ada", f"--name={SWEEP}", "--format=%N.")
    return [line.rstrip(".") for line in cluster.run(*argv, *asked).split()]


def test_every_trial_of_an_interrupted_sweep_ends_once(cluster):
    cluster.toolkit(
        *("sweep", "start", SWEEP, "--as", "ada", "--trials", str(TRIALS), "--at-once", "8"),
        *(SCRIPT, "--epochs", "4"),
    )
    taken = set()
    for notice in NOTICES:
        nodes = until("a running trial", lambda: set(tasks(cluster, "RUNNING")) - taken)
        node = min(nodes)
        time.sleep(BETWEEN)  # so that it is in the middle of something
        toolkit("local", "interrupt", node, "--notice", str(notice))
        taken.add(node)
    until("the sweep's end", lambda: not tasks(cluster), 600)

    found = json.loads(cluster.toolkit("sweep", "status", SWEEP, "--json").stdout)
    counts = found["counts"]
    assert counts.get("complete", 0) + counts.get("pruned", 0) == TRIALS == found["trials"], found
    assert found["best"]
