"""The program that answers for MLflow's runs on the head node; all it prints is JSON.

slurm-runs settle [--dry-run]   give runs whose jobs are over the end that these had (a timer does)
slurm-runs list [--limit N]     the newest runs
slurm-runs find REF             the runs of a job's number, an MLflow run id, or a run's name
slurm-runs tag JSON             of {job: {tag: value}}, set the tags on every run of these jobs
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from slurmplugins import safe_json
from slurmplugins.errors import EngineError
from slurmplugins.mlflow import JOB_TAG, MlflowRest
from slurmplugins.runner import SystemRunner
from slurmplugins.settle import settle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.mlflow import Mlflow, Run
    from slurmplugins.runner import Runner

TEMPORARY: Final = 75
"""EX_TEMPFAIL: MLflow or Slurm does not answer; the next pass will try again."""

FOUND: Final = 20

_RUN_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PLAIN = re.compile(r"[\w .:/+@=-]{1,200}", re.ASCII)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        answer = _answer(options, MlflowRest(), SystemRunner(), time.time())
    except EngineError as error:
        sys.stderr.write(f"{error.slug}: {error.message}\n")
        return TEMPORARY
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def find(mlflow: Mlflow, reference: str) -> list[Run]:
    """The runs that a person may mean, the newest first; none for what can't be a reference."""
    if _RUN_ID.fullmatch(reference):
        run = mlflow.get(reference)
        return [run] if run else []
    if not _PLAIN.fullmatch(reference):
        return []
    if reference.isdigit():
        query = _of_job(int(reference))
    elif reference.startswith("/"):
        query = f"tags.`toolkit.run_dir` = '{reference.rstrip('/')}'"
    else:
        query = f"attributes.run_name = '{reference}'"
    return list(mlflow.search(query, limit=FOUND))


def tag(mlflow: Mlflow, jobs: Mapping[int, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Set the tags of each job on its runs; which runs these were."""
    done: list[dict[str, Any]] = []
    for job, tags in jobs.items():
        for run in list(mlflow.search(_of_job(job))):
            for key, value in tags.items():
                mlflow.tag(run.run_id, key, value)
            done.append({"job": job, "run_id": run.run_id})
    return done


def _of_job(job: int) -> str:
    return f"tags.`{JOB_TAG}` = '{job}'"


def _tags(text: str) -> Mapping[int, Mapping[str, str]]:
    """Raises ValueError for anything else."""
    try:
        return {
            int(job): {str(key): str(value) for key, value in tags.items()}
            for job, tags in safe_json.loads(text).items()
        }
    except AttributeError as error:
        raise ValueError(text) from error


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
    words.add_parser("tag").add_argument("jobs", type=_tags)
    return parser
