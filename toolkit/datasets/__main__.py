"""The part of `toolkit data` that runs on the cluster's instances, without `toolkit`.

python3 -m toolkit.datasets add FOLDER [--name NAME] | warm REF [REF ...] | stats
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit.datasets.cache.cache import HeldDataset
from toolkit.datasets.dataset import hold_dataset
from toolkit.datasets.errors import (
    CacheTooSmall,
    CacheUnusable,
    ContentCorrupt,
    DataError,
    DatasetUnknown,
    DataStopped,
    ManifestInvalid,
    NameRefused,
    StoreBusy,
    StoreUnreachable,
    StoreUnset,
)
from toolkit.datasets.settings import DatasetSettings, read_settings
from toolkit.datasets.stop import write_verdict
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.open_store import open_store
from toolkit.datasets.store.scan import default_memory
from toolkit.training.attempt import verdict
from toolkit.training.attempt.attempt import RETRY_PAUSES, Attempt, current
from toolkit.training.attempt.stop_request import StopFiles
from toolkit.training.attempt.verdict import DO_NOT_REQUEUE, RESUME_ME

# Errors that another attempt of the same job would meet again.
_PERMANENT_ERRORS = (
    CacheTooSmall,
    CacheUnusable,
    ContentCorrupt,
    DatasetUnknown,
    ManifestInvalid,
    NameRefused,
    StoreUnset,
)
# Errors that may pass within a minute, or until the job is requeued.
_TRANSIENT_ERRORS = (StoreUnreachable, StoreBusy, OSError)
_MAX_REQUEUES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the job's exit code."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.datasets")
    commands = parser.add_subparsers(dest="command", required=True)
    add_parser = commands.add_parser("add", help="add a folder's files; print the version as JSON")
    add_parser.add_argument("folder", type=Path)
    add_parser.add_argument("--name", help="the name of this version from now on")
    warm_parser = commands.add_parser("warm", help="fill this node's cache")
    warm_parser.add_argument("references", nargs="+", metavar="REF")
    warm_parser.add_argument("--json", action="store_true", help="print the result as JSON")
    commands.add_parser("stats", help="print the cache's counts as JSON")
    options = parser.parse_args(arguments)
    settings = read_settings()
    if options.command == "stats":
        _print_json(cache_facts(settings))
        return 0
    if options.command == "add":
        return _add(options.folder, options.name, settings)
    return warm(options.references, settings, current(), as_json=options.json)


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
    stop_files = StopFiles(attempt.stop_files, attempt.started_at)
    # All are held until the end: the last dataset must not evict the first.
    dataset_count = 0
    held_datasets = ExitStack()
    try:
        for reference in references:
            started_at = time.monotonic()
            held_dataset = _hold_with_retries(
                reference, settings, stop_files, RETRY_PAUSES if _in_job(attempt) else (), sleep
            )
            held_datasets.callback(held_dataset.release)
            outcome = "filled" if held_dataset.filled else "cached already"
            seconds = time.monotonic() - started_at
            _log(f"{reference}: {outcome}, {held_dataset.path} ({seconds:.1f} s)")
            dataset_count += 1
    except DataError as error:
        return _report_failure(error, stop_files, attempt, dataset_count)
    except OSError as error:
        failure = StoreUnreachable(f"the store or the cache failed: {error}")
        return _report_failure(failure, stop_files, attempt, dataset_count)
    finally:
        held_datasets.close()
    counts = settings.node_cache().stats()
    ratio = counts.hit_ratio or 0.0
    _log(f"of {counts.requests} requests to this cache so far, {ratio:.0%} needed no fill")
    if as_json:
        _print_json(cache_facts(settings))
    return 0


def _hold_with_retries(
    reference: str,
    settings: DatasetSettings,
    stop_files: StopFiles,
    pauses: Sequence[int],
    sleep: Callable[[float], None],
) -> HeldDataset:
    """Hold a dataset; while the store is unreachable, retry after each pause."""
    remaining_pauses = iter(pauses)
    while not stop_files.poll():
        try:
            return hold_dataset(reference, settings, should_stop=stop_files.poll, log=_log)
        except _TRANSIENT_ERRORS as error:
            if (pause := next(remaining_pauses, None)) is None:
                raise
            _log(f"{reference}: next try in {pause} s: {error}")
        for _ in range(pause):
            if not stop_files.poll():
                sleep(1)
    raise DataStopped("a stop was requested")


def _add(folder: Path, name: str | None, settings: DatasetSettings) -> int:
    try:
        catalog = Catalog(open_store(settings.store_url()))
        added = add(catalog, folder, name=name, memory=default_memory(folder), log=_log)
        _print_json(asdict(added))
    except DataError as error:
        _log_error(error)
        return 1
    return 0


def _report_failure(
    error: DataError, stop_files: StopFiles, attempt: Attempt, dataset_count: int
) -> int:
    """Print the error, write the batch script's verdict, return its exit code."""
    _log_error(error)
    may_requeue = _in_job(attempt) and attempt.restart_count < _MAX_REQUEUES
    if isinstance(error, DataStopped):
        final_verdict, exit_code = stop_files.verdict(dataset_count, error.message), RESUME_ME
    elif isinstance(error, _PERMANENT_ERRORS):
        final_verdict = verdict.hold(dataset_count, error.reason, error.message)
        exit_code = DO_NOT_REQUEUE
    elif isinstance(error, _TRANSIENT_ERRORS) and may_requeue:
        final_verdict = verdict.resume(dataset_count, error.reason, error.message)
        exit_code = RESUME_ME
    else:
        final_verdict = verdict.failed(dataset_count, f"{error.reason}: {error.message}")
        exit_code = 1
    with suppress(OSError):  # the exit code says the same
        write_verdict(attempt, final_verdict)
    return exit_code


def _in_job(attempt: Attempt) -> bool:
    return attempt.job_id != "local"


def _log_error(error: DataError) -> None:
    _log(f"{error.message} [{error.reason}]" + (f"; {error.next_step}" if error.next_step else ""))


def _log(text: str) -> None:
    sys.stderr.write(f"[toolkit] {os.uname().nodename}: {text}\n")
    sys.stderr.flush()


def _print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
