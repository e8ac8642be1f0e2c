"""Summarise a run's folder as one JSON object: submission, attempts, time and result.

    python -m toolkit.training summary RUN_DIR

Exits 2 when there is no run. Run it as the folder's owner.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit.training.io.durable_files import read_json
from toolkit.training.recording import goodput
from toolkit.training.reproduce import submission
from toolkit.training.run_folder.attempts import Ledger
from toolkit.training.run_folder.run_folder import RunDir


def of(run_dir: Path, now: float) -> dict[str, Any]:
    """Return the summary.

    Raises FileNotFoundError when there is no run.
    """
    run = RunDir(run_dir)
    if not run.facts():
        raise FileNotFoundError(f"{run_dir}: no run.json; is this a run's folder?")
    submitted = submission.read(run_dir)
    return {
        "run_dir": str(run_dir),
        "facts": dict(run.facts()),
        "mlflow": read_json(run_dir / "mlflow.json"),
        "submission": asdict(submitted) if submitted else None,
        "attempts": [asdict(attempt) for attempt in Ledger(run.attempts).attempts()],
        "goodput": goodput.of(run_dir, now).as_json() if run.attempts.exists() else None,
        "result": read_json(run.result),
        "checkpoints": sorted(path.name for path in run.checkpoints.glob("step-*")),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 2 when there is no run."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training summary")
    parser.add_argument("run_dir", type=Path)
    options = parser.parse_args(arguments)
    try:
        found = of(options.run_dir.resolve(), time.time())
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(found) + "\n")
    return 0
