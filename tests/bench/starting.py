"""What ResumeProgram costs before it talks to anybody: imports, and reading what it was given."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import ask, contest

REPEATS = 15
BARE = "pass"
OURS = """
import sys; sys.path.insert(0, {root!r})
import os, time
from pathlib import Path

def spent():
    os.write(1, str(time.process_time()).encode())
    os._exit(0)

class AtBoto3:
    def find_spec(self, name, path=None, target=None):
        if name in {{"boto3", "botocore"}}:
            spent()

sys.meta_path.insert(0, AtBoto3())
sys.argv = ["slurm-resume", {hostlist!r}]
from slurmplugins import resume, detach
detach.in_background = lambda: True  # it is measured itself, not its child
from slurmplugins import paths
here = Path({place!r})
paths.BURST, paths.STATE, paths.LOGS = here / "burst.json", here / "state", here / "logs"
if {parsed!r}:
    from slurmplugins import runtime
    runtime.check_cluster = lambda *_: spent()  # what assemble does when all is parsed
resume.main()
"""
"""ResumeProgram's own `main`, stopped when all is parsed, or when it is about to load boto3."""
PEER = "import slurm_plugin.resume"
RETURNS = "import sys; sys.path.insert(0, {root!r}); import slurmplugins.resume as m; m.main()"
SPENT = "\nimport time; print(time.process_time())"


def costs() -> dict[str, list[float]]:
    """Milliseconds: CPU to parsed and to boto3, for the peer CPU to imported, wall to returned."""
    load = ask.Load(500, 8)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        ask.write_ours(root, load, "subnet-a", Path("/usr/bin"))
        hostlist, here = load.hostlist(ask.OUR_POOL), str(contest.ROOT)
        parsed, loaded = (
            OURS.format(root=here, place=place, hostlist=hostlist, parsed=stop)
            for stop in (True, False)
        )
        ours = contest.our_python()
        programs = {
            "bare": [ours, "-I", "-c", BARE + SPENT],
            "parsed": [ours, "-I", "-c", parsed],
            "loaded": [ours, "-I", "-c", loaded],
            "peer": [contest.peer_python(), "-I", "-c", PEER + SPENT],
        }
        environment = {"SLURM_RESUME_FILE": str(root / "resume.json")}
        # In turns, so that a busy moment of the machine is a busy moment for all.
        taken: dict[str, list[float]] = {name: [] for name in (*programs, "returns")}
        for _ in range(REPEATS):
            for name, argv in programs.items():
                taken[name].append(_cpu(argv, environment))
            taken["returns"].append(_returns(here, hostlist, environment))
        return taken


def _cpu(argv: list[str], environment: dict[str, str]) -> float:
    done = subprocess.run(argv, env=environment, capture_output=True, check=True, text=True)
    return float(done.stdout.split()[-1]) * 1000


def _returns(root: str, hostlist: str, environment: dict[str, str]) -> float:
    """Wall clock until slurmctld has its process back; what goes on behind it finds no cluster."""
    began = time.monotonic()
    argv = [sys.executable, "-I", "-c", RETURNS.format(root=root), hostlist]
    subprocess.run(argv, env=environment, capture_output=True, check=True)
    return (time.monotonic() - began) * 1000
