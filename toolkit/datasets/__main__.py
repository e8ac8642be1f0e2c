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

from toolkit.datasets.cache.cache import Held
from toolkit.datasets.dataset import take
from toolkit.datasets.errors import (
    CacheTooSmall,
    CacheUnusable,
    ContentCorrupt,
    DataError,
    DatasetUnknown,
    ManifestInvalid,
    NameRefused,
    Stopped,
    StoreBusy,
    StoreUnreachable,
    StoreUnset,
)
from toolkit.datasets.settings import Places, places
from toolkit.datasets.stop import leave
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.open_store import open_store
from toolkit.datasets.store.scan import default_memory
from toolkit.training.attempt import verdict
from toolkit.training.attempt.attempt import PATIENCE, Attempt, current
from toolkit.training.attempt.stop_request import StopFiles
from toolkit.training.attempt.verdict import DO_NOT_REQUEUE, RESUME_ME

# Errors that another attempt of the same job would meet again.
_HOPELESS = (
    CacheTooSmall,
    CacheUnusable,
    ContentCorrupt,
    DatasetUnknown,
    ManifestInvalid,
    NameRefused,
    StoreUnset,
)
# Errors that may be over in a minute, or when the job is requeued.
_PASSING = (StoreUnreachable, StoreBusy, OSError)
_COMEBACKS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the job's exit code."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.datasets")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="add a folder's files; print the version as JSON")
    adding.add_argument("folder", type=Path)
    adding.add_argument("--name", help="what stands for this version from now on")
    warming = commands.add_parser("warm", help="fill this node's cache")
    warming.add_argument("references", nargs="+", metavar="REF")
    warming.add_argument("--json", action="store_true", help="print what was done as JSON")
    commands.add_parser("stats", help="print the cache's counts as JSON")
    options = parser.parse_args(arguments)
    where = places()
    if options.command == "stats":
        _print(facts(where))
        return 0
    if options.command == "add":
        return _add(options.folder, options.name, where)
    return warm(options.references, where, current(), as_json=options.json)


def facts(where: Places) -> dict[str, Any]:
    """Return what this node's cache holds and its counts, as JSON values."""
    cache = where.node_cache()
    counted = cache.stats()
    return {
        "cache": str(cache.root),
        "limit_bytes": cache.limit,
        "used_bytes": cache.used,
        "entries": [asdict(entry) for entry in cache.entries()],
        **asdict(counted),
        "requests": counted.requests,
        "hit_ratio": counted.hit_ratio,
    }


def warm(
    references: Sequence[str],
    where: Places,
    attempt: Attempt,
    *,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Fill this node's cache with the datasets; return the job's exit code."""
    stop = StopFiles(attempt.stop_files, attempt.started_at)
    # All are held until the end: the last dataset must not evict the first.
    done = 0
    held = ExitStack()
    try:
        for reference in references:
            began = time.monotonic()
            one = _take(reference, where, stop, PATIENCE if _in_job(attempt) else (), sleep)
            held.callback(one.release)
            how = "filled" if one.filled else "was there"
            _say(f"{reference}: {how}, {one.path} ({time.monotonic() - began:.1f} s)")
            done += 1
    except DataError as error:
        return _end(error, stop, attempt, done)
    except OSError as error:
        return _end(StoreUnreachable(f"the store or the cache: {error}"), stop, attempt, done)
    finally:
        held.close()
    counted = where.node_cache().stats()
    ratio = counted.hit_ratio or 0.0
    _say(f"of {counted.requests} requests to this cache so far, {ratio:.0%} fetched nothing")
    if as_json:
        _print(facts(where))
    return 0


def _take(
    reference: str,
    where: Places,
    stop: StopFiles,
    pauses: Sequence[int],
    sleep: Callable[[float], None],
) -> Held:
    """Take a dataset; while the store is unreachable, retry after each pause."""
    left = iter(pauses)
    while not stop.poll():
        try:
            return take(reference, where, stop=stop.poll, say=_say)
        except _PASSING as error:
            if (pause := next(left, None)) is None:
                raise
            _say(f"{reference}: once more in {pause} s: {error}")
        for _ in range(pause):
            if not stop.poll():
                sleep(1)
    raise Stopped("a stop was asked for")


def _add(folder: Path, name: str | None, where: Places) -> int:
    try:
        catalog = Catalog(open_store(where.store_url()))
        _print(asdict(add(catalog, folder, name=name, memory=default_memory(folder), say=_say)))
    except DataError as error:
        _complain(error)
        return 1
    return 0


def _end(error: DataError, stop: StopFiles, attempt: Attempt, done: int) -> int:
    """Print the error, write the batch script's verdict, return its exit code."""
    _complain(error)
    if isinstance(error, Stopped):
        word, code = stop.word(done, error.message), RESUME_ME
    elif isinstance(error, _HOPELESS):
        word, code = verdict.hold(done, error.reason, error.message), DO_NOT_REQUEUE
    elif isinstance(error, _PASSING) and _in_job(attempt) and attempt.restart_count < _COMEBACKS:
        word, code = verdict.resume(done, error.reason, error.message), RESUME_ME
    else:
        word, code = verdict.failed(done, f"{error.reason}: {error.message}"), 1
    with suppress(OSError):  # the exit code says it, too
        leave(attempt, word)
    return code


def _in_job(attempt: Attempt) -> bool:
    return attempt.job_id != "local"


def _complain(error: DataError) -> None:
    _say(f"{error.message} [{error.reason}]" + (f"; {error.next_step}" if error.next_step else ""))


def _say(text: str) -> None:
    sys.stderr.write(f"[toolkit] {os.uname().nodename}: {text}\n")
    sys.stderr.flush()


def _print(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
