"""Read, tag and end MLflow's runs on the head node. All that it prints is JSON.

slurm-runs settle [--dry-run]   Give runs of ended jobs their jobs' end. A timer does so.
slurm-runs list [--limit N]     List the newest runs.
slurm-runs find REF             Find runs by job number, MLflow run id, or name.
slurm-runs tag JSON             Given {job: {tag: value}}, set the tags on all runs of these jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import EngineError
from slurmplugins.head.end_mlflow_runs import end_runs
from slurmplugins.head.mlflow import MlflowRest, find_runs, parse_job_tags, tag_runs
from slurmplugins.system.command import SystemRunner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurmplugins.head.mlflow import Mlflow
    from slurmplugins.system.command import Runner


TEMPORARY: Final = 75
"""EX_TEMPFAIL: MLflow or Slurm does not answer; the next call may succeed."""
USER: Final = "slurm"
"""The system user that may change everybody's runs: MLflow tells callers apart by uid."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        with _acting_as(USER):
            answer = _execute(options, MlflowRest(), SystemRunner(), time.time())
    except EngineError as error:
        sys.stderr.write(f"{error.reason_code}: {error.message}\n")
        return TEMPORARY
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


@contextmanager
def _acting_as(name: str) -> Iterator[None]:
    """Act as this user, if root runs the program.

    MLflow lets root change nothing.
    """
    own = os.geteuid()
    try:
        uid = pwd.getpwnam(name).pw_uid if own == 0 else own
    except KeyError:
        uid = own  # this is no head node
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(own)


def _execute(
    options: argparse.Namespace, mlflow: Mlflow, runner: Runner, now: float
) -> list[dict[str, Any]]:
    if options.what == "settle":
        ended_runs = end_runs(mlflow, runner, now, dry_run=options.dry_run)
        return [asdict(ended_run) for ended_run in ended_runs]
    if options.what == "tag":
        return tag_runs(mlflow, options.jobs)
    if options.what == "find":
        return [asdict(run) for run in find_runs(mlflow, options.reference)]
    query = "attributes.status = 'RUNNING'" if options.running else ""
    return [asdict(run) for run in mlflow.search(query, limit=options.limit)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-runs")
    subparsers = parser.add_subparsers(dest="what", required=True)
    settle_parser = subparsers.add_parser("settle")
    settle_parser.add_argument("--dry-run", action="store_true")
    list_parser = subparsers.add_parser("list")
    list_parser.add_argument("--limit", type=int, default=20)
    list_parser.add_argument("--running", action="store_true")
    subparsers.add_parser("find").add_argument("reference")
    subparsers.add_parser("tag").add_argument("jobs", type=parse_job_tags)
    return parser
