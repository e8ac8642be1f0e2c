"""Find the stop forecast of the run most like a submission.

    python -m toolkit.training similar-run --script-sha256 SHA [--runs FOLDER] [-- ARG ...]

prints one line of JSON: that run's forecast, or null. A run measures its forecast at its first
save.

The most similar run has the same batch script and arguments, or else the same training script (the
first ARG). Of several runs the newest counts.
"""

import argparse
import json
import os
import pwd
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from toolkit.training.reproduce import submission
from toolkit.training.reproduce.submission import Submission
from toolkit.training.run_folder.stop_forecast import FILE, MeasuredForecast, read_measured


def most_similar(
    runs: Path, script_sha256: str, arguments: Sequence[str]
) -> MeasuredForecast | None:
    """Return the forecast of the run most like this submission.

    Of several runs the newest counts.
    """
    ranked = [
        ((likeness, (folder / FILE).stat().st_mtime), measured)
        for folder, measured in _measured_forecasts(runs)
        if (likeness := _likeness(submission.read(folder), script_sha256, tuple(arguments)))
    ]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _measured_forecasts(runs: Path) -> Iterator[tuple[Path, MeasuredForecast]]:
    for path in runs.glob(f"*/{FILE}"):
        if measured := read_measured(path.parent):
            yield path.parent, measured


def _likeness(earlier: Submission | None, sha256: str, arguments: tuple[str, ...]) -> int:
    """Return how like the submissions are, 0 for not at all."""
    if earlier is None:
        return 0
    same_script = earlier.job_script_sha256 == sha256
    if same_script and earlier.arguments == arguments:
        return 3
    if not arguments or earlier.arguments[:1] != arguments[:1]:
        return 0
    return 2 if same_script else 1


def default_runs(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which preflight.sh makes this user's runs."""
    stated_folder = environment.get("TOOLKIT_RUNS")
    return Path(stated_folder) if stated_folder else Path(pwd.getpwuid(os.getuid()).pw_dir) / "runs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and print the forecast."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training similar-run")
    parser.add_argument("--script-sha256", required=True)
    parser.add_argument("--runs", type=Path, default=None)
    parser.add_argument("arguments", nargs="*", metavar="ARG", help="after --")
    options = parser.parse_args(arguments)
    measured = most_similar(
        options.runs or default_runs(), options.script_sha256, options.arguments
    )
    sys.stdout.write(json.dumps(asdict(measured) if measured else None) + "\n")
    return 0
