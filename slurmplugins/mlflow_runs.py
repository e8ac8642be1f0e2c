"""Read, tag and end MLflow's runs on the head node. All that it prints is JSON.

slurm-runs settle [--dry-run]   Give runs of ended jobs their jobs' end. A timer does so.
slurm-runs list [--limit N]     List the newest runs.
slurm-runs find REF             Find runs by job number, MLflow run id, or name.
slurm-runs tag JSON             Given {job: {tag: value}}, set the tags on all runs of these jobs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import EngineError
from slurmplugins.head.end_mlflow_runs import settle
from slurmplugins.head.mlflow import MlflowRest, find, tag, tags_by_job
from slurmplugins.system.command import SystemRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.head.mlflow import Mlflow
    from slurmplugins.system.command import Runner


TEMPORARY: Final = 75
"""EX_TEMPFAIL: MLflow or Slurm does not answer; the next call may succeed."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        answer = _answer(options, MlflowRest(), SystemRunner(), time.time())
    except EngineError as error:
        sys.stderr.write(f"{error.slug}: {error.message}\n")
        return TEMPORARY
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _answer(
    options: argparse.Namespace, mlflow: Mlflow, runner: Runner, now: float
) -> list[dict[str, Any]]:
    if options.what == "settle":
        done = settle(mlflow, runner, now, dry_run=options.dry_run)
        return [asdict(one) for one in done]
    if options.what == "tag":
        return tag(mlflow, options.jobs)
    if options.what == "find":
        return [asdict(run) for run in find(mlflow, options.reference)]
    query = "attributes.status = 'RUNNING'" if options.running else ""
    return [asdict(run) for run in mlflow.search(query, limit=options.limit)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-runs")
    words = parser.add_subparsers(dest="what", required=True)
    settling = words.add_parser("settle")
    settling.add_argument("--dry-run", action="store_true")
    listing = words.add_parser("list")
    listing.add_argument("--limit", type=int, default=20)
    listing.add_argument("--running", action="store_true")
    words.add_parser("find").add_argument("reference")
    words.add_parser("tag").add_argument("jobs", type=tags_by_job)
    return parser
