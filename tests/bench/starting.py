"""Benchmark of ResumeProgram before its first request.

It measures the imports and the reading of its files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import contest, workload
from toolkit.config import load as load_config
from toolkit.deploy.head import Head
from toolkit.deploy.session import Clients
from toolkit.local.machines.layout import Layout

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
from slurmplugins import resume
from slurmplugins.config import paths
from slurmplugins.system import daemonize
daemonize.fork_to_background = lambda: True  # it is measured itself, not its child
here = Path({place!r})
paths.BURST, paths.STATE, paths.LOGS = here / "burst.json", here / "state", here / "logs"
if {parsed!r}:
    from slurmplugins.head import assemble
    assemble.check_cluster = lambda *_: spent()  # what assemble does when all is parsed
resume.main()
"""
"""ResumeProgram's own `main`. It stops after parsing all files, or just before it imports boto3."""
PEER = "import slurm_plugin.resume"
RETURNS = "import sys; sys.path.insert(0, {root!r}); import slurmplugins.resume as m; m.main()"
SPENT = "\nimport time; print(time.process_time())"


LOOP = """
import json, os, subprocess, sys
programs, place = json.loads(sys.argv[1]), sys.argv[2]
environment = {"SLURM_RESUME_FILE": place + "/resume.json"}
taken = {name: [] for name in programs}
for _ in range(int(sys.argv[3])):
    for name, code in programs.items():
        argv = ["/usr/bin/python3", "-I", "-c", code]
        done = subprocess.run(argv, env=environment, capture_output=True, check=True, text=True)
        taken[name].append(float(done.stdout.split()[-1]) * 1000)
print(json.dumps({"python": sys.version.split()[0], "taken": taken}))
"""
"""A loop for the head node, with its Python and the package that is installed there."""


def on_head(cluster: Path) -> tuple[str, dict[str, list[float]]]:
    """Measure on a local cluster's head node.

    Returns its Python's version, and milliseconds of CPU. The cluster must be up.
    """
    config = load_config(cluster)
    load, name = workload.Load(500, 8), "bench-start"
    (filesystem,) = Layout.from_environment().filesystems.iterdir()
    there, place = filesystem / name, f"/shared/{name}"
    there.mkdir()
    try:
        workload.write_ours(there, load, "subnet-a", Path("/usr/bin"))
        installed, hostlist = "/opt/slurm-toolkit/lib", load.hostlist(workload.OUR_POOL)
        parsed, loaded = (
            OURS.format(root=installed, place=place, hostlist=hostlist, parsed=stop)
            for stop in (True, False)
        )
        programs = json.dumps({"bare": BARE + SPENT, "parsed": parsed, "loaded": loaded})
        argv = ("python3", "-I", "-c", LOOP, programs, place, str(REPEATS))
        said = json.loads(Head(Clients(config), config).run(argv))
    finally:
        shutil.rmtree(there)
    return said["python"], said["taken"]


def costs() -> dict[str, list[float]]:
    """Measure here, and return milliseconds for each program.

    Ours are measured in CPU to the end of parsing and to boto3. The peer is measured in CPU to the
    end of its imports. The wall time runs to the return of ResumeProgram.
    """
    load = workload.Load(500, 8)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        workload.write_ours(root, load, "subnet-a", Path("/usr/bin"))
        hostlist, here = load.hostlist(workload.OUR_POOL), str(contest.ROOT)
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
        # In turns, so that a busy moment of the host falls on all.
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
    """Measure the wall time until slurmctld has its process back.

    The process behind it finds no cluster.
    """
    began = time.monotonic()
    argv = [sys.executable, "-I", "-c", RETURNS.format(root=root), hostlist]
    subprocess.run(argv, env=environment, capture_output=True, check=True)
    return (time.monotonic() - began) * 1000
