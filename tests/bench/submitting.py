"""Benchmark of the line at submit: what cli_filter.lua adds to each sbatch.

The budgets of so many accounts are in the file that the script reads.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

from slurmplugins.config import burst, submit_line
from slurmplugins.head import price_file
from slurmplugins.head.price_file import Remaining
from tests.bench import contest
from tests.unit.render.render_samples import FACTS, PRICES, a_config
from toolkit.render import bundle_files
from toolkit.render.burst import burst_json

REPEATS = 51
LUA = "lua5.4"
PLUGIN = contest.ROOT / "tests/unit/quote/slurm_cli.lua"
"""Calls the script as Slurm's own plugin does."""
SHARED = "/shared/.toolkit/quote/prices.json"
SPOT = {("g5.xlarge", "us-east-1a"): "0.40"}
JOB = ("type=sbatch", "nodes=1-0", "ntasks=1", "ntasks-per-node=-2", "cpus-per-task=0",
       "exclusive=unset", "time=08:00:00", "gpus=1", "account=account-7")  # fmt: skip


def costs(accounts: int) -> dict[str, list[float]]:
    """Return milliseconds of wall time: of Lua alone, and with the script."""
    now = int(time.time())
    with tempfile.TemporaryDirectory() as place:
        script = _written(Path(place), accounts, now)
        programs = {
            "bare": [LUA, "-e", ""],
            "line": [LUA, str(PLUGIN), str(script), str(now), *JOB],
        }
        if "in its budget" not in _run(programs["line"]):
            raise RuntimeError("the script did not look at the budget")
        # In turns, so that a busy moment of the host falls on both.
        taken: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(REPEATS):
            for name, argv in programs.items():
                began = time.perf_counter()
                _run(argv)
                taken[name].append((time.perf_counter() - began) * 1000)
        return taken


def _written(folder: Path, accounts: int, now: int) -> Path:
    """Write the script and its file of prices; return the script."""
    config = a_config()
    document = json.loads(burst_json(config, FACTS, PRICES))
    remaining = Remaining(accounts={f"account-{number}": 1.5 for number in range(accounts)})
    prices = folder / "prices.json"
    prices.write_bytes(
        price_file.document(
            burst.parse(document), submit_line.parse(document), SPOT, remaining, now
        )
    )
    templates = contest.ROOT / "templates"
    text = bundle_files(config, FACTS, PRICES, templates=templates)["cli_filter.lua"]
    script = folder / "cli_filter.lua"
    script.write_text(text.replace(SHARED, str(prices)))
    return script


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    return done.stderr
