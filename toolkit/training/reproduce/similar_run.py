"""What a stop takes, as earlier runs found out at their first save: kept for the next submission.

    python -m toolkit.training similar-run --script-sha256 SHA [--runs FOLDER] [-- ARG ...]

prints, as one line of JSON, what the run most like that one measured, or null: of the same batch
script and arguments, else of the same training script (the first ARG); of several the newest.
"""

import argparse
import json
import os
import pwd
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from toolkit.training.checkpoint.save_interval import StopForecast
from toolkit.training.io.durable_files import read_json, write_json
from toolkit.training.reproduce import submission
from toolkit.training.reproduce.submission import Submission

FILE = "stop-forecast.json"


@dataclass(frozen=True, slots=True)
class Measured:
    """A forecast, and the job that made it."""

    job_id: str
    world_size: int
    forecast: StopForecast

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Self | None:
        """What `keep` wrote; None for what another version did."""
        try:
            forecast = StopForecast(**found["forecast"])
            return cls(str(found["job_id"]), int(found["world_size"]), forecast)
        except (KeyError, TypeError, ValueError):
            return None


def keep(run_dir: Path, forecast: StopForecast, job_id: str, world_size: int) -> None:
    """Leave the forecast in the run's folder, in place of that of an earlier attempt."""
    write_json(run_dir / FILE, asdict(Measured(job_id, world_size, forecast)))


def of(run_dir: Path) -> Measured | None:
    """What a run measured, if it came so far as to save."""
    found = read_json(run_dir / FILE)
    return Measured.parse(found) if found else None


def like(runs: Path, script_sha256: str, arguments: Sequence[str]) -> Measured | None:
    """What the run that is most like this submission measured; of several the newest."""
    ranked = [
        ((likeness, (folder / FILE).stat().st_mtime), measured)
        for folder, measured in _measured(runs)
        if (likeness := _likeness(submission.read(folder), script_sha256, tuple(arguments)))
    ]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _measured(runs: Path) -> Iterator[tuple[Path, Measured]]:
    for path in runs.glob(f"*/{FILE}"):
        if found := of(path.parent):
            yield path.parent, found


def _likeness(earlier: Submission | None, sha256: str, arguments: tuple[str, ...]) -> int:
    """0: it says nothing about this one."""
    if earlier is None:
        return 0
    same_script = earlier.job_script_sha256 == sha256
    if same_script and earlier.arguments == arguments:
        return 3
    if not arguments or earlier.arguments[:1] != arguments[:1]:
        return 0
    return 2 if same_script else 1


def default_runs(environment: Mapping[str, str] = os.environ) -> Path:
    """Where preflight.sh puts this user's runs."""
    named = environment.get("TOOLKIT_RUNS")
    return Path(named) if named else Path(pwd.getpwuid(os.getuid()).pw_dir) / "runs"


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training similar-run")
    parser.add_argument("--script-sha256", required=True)
    parser.add_argument("--runs", type=Path, default=None)
    parser.add_argument("arguments", nargs="*", metavar="ARG", help="after --")
    options = parser.parse_args(words)
    found = like(options.runs or default_runs(), options.script_sha256, options.arguments)
    sys.stdout.write(json.dumps(asdict(found) if found else None) + "\n")
    return 0
