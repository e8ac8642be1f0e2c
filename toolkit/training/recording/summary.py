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
from toolkit.training.run_folder.attempts import AttemptsFile
from toolkit.training.run_folder.run_folder import RunFolder


def summarise(run_dir: Path, now: float) -> dict[str, Any]:
    """Return the summary.

    Raises FileNotFoundError when there is no run.
    """
    run_folder = RunFolder(run_dir)
    if not run_folder.facts():
        raise FileNotFoundError(f"{run_dir}: no run.json; is this a run's folder?")
    submitted = submission.read(run_dir)
    return {
        "run_dir": str(run_dir),
        "facts": dict(run_folder.facts()),
        "mlflow": read_json(run_dir / "mlflow.json"),
        "submission": asdict(submitted) if submitted else None,
        "attempts": [asdict(attempt) for attempt in AttemptsFile(run_folder.attempts).attempts()],
        "goodput": goodput.split_of_run(run_dir, now).as_json()
        if run_folder.attempts.exists()
        else None,
        "result": read_json(run_folder.result),
        "checkpoints": sorted(path.name for path in run_folder.checkpoints.glob("step-*")),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 2 when there is no run."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training summary")
    parser.add_argument("run_dir", type=Path)
    options = parser.parse_args(arguments)
    try:
        summary = summarise(options.run_dir.resolve(), time.time())
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(summary) + "\n")
    return 0
