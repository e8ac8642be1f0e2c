"""CPU that resume uses before boto3 is needed: its imports, its resume file, burst.json.

    python scripts/startup_cost.py [nodes]

Prints the least and the median of 40 runs, each a fresh interpreter started as the wrapper does
it (-I), and the share of a bare interpreter in it.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 40

WORK = """
import sys
sys.path.insert(0, {root!r})
from slurmplugins import bursting, config, resume_file, runtime
asks = resume_file.asks(open({resume!r}, "rb").read(), {hostlist!r})
from pathlib import Path
config.load(Path({burst!r}))
assert not any(name.startswith("boto") for name in sys.modules)
"""


def cpu(code: str) -> float:
    """Milliseconds of user and system time of one fresh interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-c", code], {})
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"the run failed: {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def documents(nodes: int) -> tuple[str, str, str]:
    """A hostlist, a resume file of jobs of 8 nodes, and the burst.json to them."""
    hostlist = f"gpu-[0001-{nodes:04d}]"
    jobs = [
        {"job_id": first, "nodes_resume": f"gpu-[{first:04d}-{min(first + 7, nodes):04d}]"}
        for first in range(1, nodes + 1, 8)
    ]
    offering = {"type": "g5.xlarge", "capacity": "spot", "zone": "us-east-1a", "price": "0.4"}
    pool = {
        "nodes": hostlist,
        "partition": "gpu",
        "launch_template": "demo-gpu",
        "subnets": {"us-east-1a": "subnet-0a"},
        "offerings": [offering],
    }
    burst = {"version": 1, "cluster": "demo", "region": "us-east-1", "bucket": "b"}
    return hostlist, json.dumps({"jobs": jobs}), json.dumps({**burst, "pools": {"gpu": pool}})


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    hostlist, resume, burst = documents(nodes)
    with tempfile.TemporaryDirectory() as folder:
        paths = {"resume": f"{folder}/resume.json", "burst": f"{folder}/burst.json"}
        Path(paths["resume"]).write_text(resume, encoding="utf-8")
        Path(paths["burst"]).write_text(burst, encoding="utf-8")
        code = WORK.format(root=str(ROOT), hostlist=hostlist, **paths)
        cpu(code)  # compiles what is not compiled yet
        took = [cpu(code) for _ in range(RUNS)]
    bare = min(cpu("pass") for _ in range(RUNS))
    sys.stdout.write(
        f"{nodes} nodes: least {min(took):.0f} ms, median {statistics.median(took):.0f} ms;"
        f" a bare interpreter {bare:.0f} ms (Python {sys.version.split()[0]})\n"
    )


if __name__ == "__main__":
    main()
