"""What ResumeProgram costs before it talks to anybody: imports, and reading what it was given."""

from __future__ import annotations

import statistics
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
from pathlib import Path
import slurmplugins.resume, slurmplugins.detach
from slurmplugins import bursting, config, resume_file, runtime
config.load(Path({burst!r}))
asks = resume_file.asks(Path({resume!r}).read_bytes(), {hostlist!r})
assert len(asks) == 500 and "boto3" not in sys.modules
"""
PEER = "import slurm_plugin.resume"
RETURNS = "import sys; sys.path.insert(0, {root!r}); import slurmplugins.resume as m; m.main()"
SPENT = "\nimport time; print(time.process_time())"


def costs() -> dict[str, float]:
    """Milliseconds, medians: CPU to parsed, for the peer CPU to imported, wall until returned."""
    load = ask.Load(500, 8)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        ask.write_ours(root, load, "subnet-a", Path("/usr/bin"))
        values = {
            "root": str(contest.ROOT),
            "burst": str(root / "burst.json"),
            "resume": str(root / "resume.json"),
            "hostlist": load.hostlist(ask.OUR_POOL),
        }
        ours = contest.our_python()
        return {
            "bare": _cpu([ours, "-I", "-c", BARE + SPENT]),
            "ours": _cpu([ours, "-I", "-c", OURS.format(**values) + SPENT]),
            "peer": _cpu([contest.peer_python(), "-I", "-c", PEER + SPENT]),
            "returns": _returns(values["root"], root / "resume.json", values["hostlist"]),
        }


def _cpu(argv: list[str]) -> float:
    taken = []
    for _ in range(REPEATS):
        done = subprocess.run(argv, capture_output=True, check=True, text=True)
        taken.append(float(done.stdout.split()[-1]) * 1000)
    return statistics.median(taken)


def _returns(root: str, resume: Path, hostlist: str) -> float:
    """Wall clock until slurmctld has its process back; what goes on behind it finds no cluster."""
    taken = []
    for _ in range(REPEATS):
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-I", "-c", RETURNS.format(root=root), hostlist],
            env={"SLURM_RESUME_FILE": str(resume)},
            capture_output=True,
            check=True,
        )
        taken.append((time.monotonic() - began) * 1000)
    return statistics.median(taken)
