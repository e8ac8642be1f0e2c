"""The part of `toolkit data` that runs on the cluster's instances, without `toolkit`.

    python3 -m toolkit.datasets add FOLDER [--name NAME]
    python3 -m toolkit.datasets warm REF [REF ...]
    python3 -m toolkit.datasets stats
    python3 -m toolkit.datasets put FOLDER NAME
    python3 -m toolkit.datasets put-run RUN [--name NAME]
    python3 -m toolkit.datasets get REF FOLDER

The jobs of jobscripts/ start it.
"""

import argparse
import json
import os
import pwd
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from toolkit.datasets import staging
from toolkit.datasets.cache.cache import HeldDataset
from toolkit.datasets.copy_plan import CopyPlan, CopyRates, site_data
from toolkit.datasets.dataset import hold_dataset
from toolkit.datasets.errors import DataError, DatasetUnknown
from toolkit.datasets.job import DataJob, log, log_error
from toolkit.datasets.settings import DatasetSettings, read_settings
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.open_store import open_store
from toolkit.datasets.store.scan import default_memory, keep_all
from toolkit.training.attempt.attempt import Attempt, current


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the job's exit code."""
    options = parser().parse_args(arguments)
    settings = read_settings()
    if options.command == "stats":
        _print_json(cache_facts(settings))
        return 0
    if options.command == "add":
        return _add(options.folder, options.name, settings)
    if options.command == "warm":
        return warm(options.references, settings, current(), as_json=options.json)
    return copy(options, settings, current())


def parser() -> argparse.ArgumentParser:
    """Return the parser of the commands."""
    program = argparse.ArgumentParser(prog="python -m toolkit.datasets")
    commands = program.add_subparsers(dest="command", required=True)
    add_parser = commands.add_parser("add", help="add a folder's files; print the version as JSON")
    add_parser.add_argument("folder", type=Path)
    add_parser.add_argument("--name", help="the name of this version from now on")
    warm_parser = commands.add_parser("warm", help="fill this node's cache")
    warm_parser.add_argument("references", nargs="+", metavar="REF")
    warm_parser.add_argument("--json", action="store_true", help="print the result as JSON")
    commands.add_parser("stats", help="print the cache's counts as JSON")
    put_parser = commands.add_parser("put", help="copy a folder into the store, under a name")
    put_parser.add_argument("folder", type=Path)
    put_parser.add_argument("name")
    run_parser = commands.add_parser("put-run", help="copy a run's results into the store")
    run_parser.add_argument("run", help="a job id, or a run folder with its path")
    run_parser.add_argument("--name", help="the dataset's name; else run-JOB")
    get_parser = commands.add_parser("get", help="copy a dataset out of the store to a new folder")
    get_parser.add_argument("reference", metavar="REF")
    get_parser.add_argument("folder", type=Path)
    for copy_parser in (put_parser, run_parser, get_parser):
        _add_copy_options(copy_parser)
    return program


def _add_copy_options(parser: argparse.ArgumentParser) -> None:
    rates = CopyRates()
    parser.add_argument("--missing-ok", action="store_true", help="nothing to copy is no failure")
    parser.add_argument("--dry-run", action="store_true", help="print what it would copy and cost")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--mbit", type=float, default=rates.mbit_per_second, help="Mbit/s, to plan")
    parser.add_argument(
        "--usd-per-gb", type=Decimal, default=rates.usd_per_gb_out, help="out of AWS, to plan"
    )


def cache_facts(settings: DatasetSettings) -> dict[str, Any]:
    """Return what this node's cache holds and its counts, as JSON values."""
    cache = settings.node_cache()
    counts = cache.stats()
    return {
        "cache": str(cache.root),
        "limit_bytes": cache.limit,
        "used_bytes": cache.used_bytes,
        "entries": [asdict(entry) for entry in cache.entries()],
        **asdict(counts),
        "requests": counts.requests,
        "hit_ratio": counts.hit_ratio,
    }


def warm(
    references: Sequence[str],
    settings: DatasetSettings,
    attempt: Attempt,
    *,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Fill this node's cache with the datasets; return the job's exit code."""
    job = DataJob(attempt, sleep)
    # All are held until the end: the last dataset must not evict the first.
    with job.ending(), ExitStack() as held_datasets:
        for reference in references:
            started_at = time.monotonic()
            held_dataset = job.run(reference, lambda: _hold(reference, settings, job))  # noqa: B023  # called at once
            held_datasets.callback(held_dataset.release)
            outcome = "filled" if held_dataset.filled else "cached already"
            seconds = time.monotonic() - started_at
            log(f"{reference}: {outcome}, {held_dataset.path} ({seconds:.1f} s)")
    if job.exit_code:
        return job.exit_code
    counts = settings.node_cache().stats()
    ratio = counts.hit_ratio or 0.0
    log(f"of {counts.requests} requests to this cache so far, {ratio:.0%} needed no fill")
    if as_json:
        _print_json(cache_facts(settings))
    return 0


def _hold(reference: str, settings: DatasetSettings, job: DataJob) -> HeldDataset:
    return hold_dataset(reference, settings, should_stop=job.should_stop, log=log)


def copy(
    options: argparse.Namespace,
    settings: DatasetSettings,
    attempt: Attempt,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Do a `put`, `put-run` or `get`; return the job's exit code."""
    job = DataJob(attempt, sleep)
    title = options.reference if options.command == "get" else "the copy"
    with job.ending():
        try:
            result = job.run(title, lambda: _copy_once(options, settings, job))
        except DatasetUnknown as error:
            if not options.missing_ok:
                raise
            log(f"nothing to copy: {error.message}")
        else:
            _report_copy(result, as_json=options.json)
    return job.exit_code


def _copy_once(
    options: argparse.Namespace, settings: DatasetSettings, job: DataJob
) -> staging.CopyResult | CopyPlan:
    catalog = Catalog(open_store(settings.store_url()))
    rates = CopyRates(mbit_per_second=options.mbit, usd_per_gb_out=options.usd_per_gb)
    if options.command == "get":
        if options.dry_run:
            return staging.planned_get(catalog, options.reference, options.folder, rates)
        return staging.get(
            catalog, options.reference, options.folder, should_stop=job.should_stop, log=log
        )
    if options.command == "put-run":
        folder = run_folder_of(options.run)
        name, left_out = options.name or f"run-{folder.name}", staging.unshared_parts(folder)
    else:
        folder, name, left_out = options.folder, options.name, keep_all
    if options.dry_run:
        return staging.planned_put(catalog, folder, rates, left_out=left_out)
    return staging.put(
        catalog, folder, name, left_out=left_out, should_stop=job.should_stop, log=log
    )


def run_folder_of(run: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the run folder of a job id or name.

    jobscripts/lib/preflight.sh names it so. A path with a slash is taken as it is.
    """
    if "/" in run:
        return Path(run)
    runs = environment.get("TOOLKIT_RUNS") or f"{pwd.getpwuid(os.getuid()).pw_dir}/runs"
    return Path(runs) / run


def _report_copy(result: staging.CopyResult | CopyPlan, *, as_json: bool) -> None:
    log(str(result))
    if isinstance(result, CopyPlan) and result.direction == "put" and result.missing_bytes:
        comment = site_data(result.missing_bytes)
        log(f"the burst governor counts it if the training job has --comment={comment}")
    if as_json:
        _print_json(asdict(result))


def _add(folder: Path, name: str | None, settings: DatasetSettings) -> int:
    try:
        catalog = Catalog(open_store(settings.store_url()))
        added = add(catalog, folder, name=name, memory=default_memory(folder), log=log)
        _print_json(asdict(added))
    except DataError as error:
        log_error(error)
        return 1
    return 0


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


if __name__ == "__main__":
    sys.exit(main())
