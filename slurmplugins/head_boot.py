"""Runs the playbook on this machine and tells S3 how far it is, for `toolkit` to show.

    python3 -m slurmplugins.head_boot --playbook site.yml --extra-vars @rendered/vars.json \\
        --status s3://BUCKET/status/head.json [--bundle SHA]

The working directory is the unpacked bundle. Region and endpoint come from the environment. The
status object has state (running, ok or failed), phase, task, done, total, error, log_tail, at and
bundle; it is written at most once a second. The whole log goes beside it when the run fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from slurmplugins import paths, runtime
from slurmplugins.clock import SystemClock
from slurmplugins.cloud.session import client
from slurmplugins.cloud.stores import S3Store
from slurmplugins.errors import CloudError
from slurmplugins.playbook import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.clock import Clock
    from slurmplugins.log import Log

INTERVAL: Final = 1.0

ANSIBLE: Final = "/usr/bin/ansible-playbook"

_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_RETRY_FILES_ENABLED": "0",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    "ANSIBLE_PIPELINING": "1",
    "PYTHONUNBUFFERED": "1",
}


class Reporter:
    """Writes the status object, not too often; what can't be written is written next time."""

    def __init__(self, store: S3Store, key: str, bundle: str, clock: Clock, log: Log) -> None:
        self._store = store
        self._key = key
        self._bundle = bundle
        self._clock = clock
        self._log = log
        self._last = float("-inf")

    def show(self, progress: Progress, *, force: bool = False) -> None:
        if not force and self._clock.monotonic() - self._last < INTERVAL:
            return
        self._last = self._clock.monotonic()
        now = self._clock.now()
        try:
            self._store.put(self._key, {**progress.to_json(), "at": now, "bundle": self._bundle})
        except CloudError as error:
            self._log.warning("status", code=error.code, message=error.message)

    def keep_log(self, text: str) -> None:
        try:
            self._store.put_text(self._key.removesuffix(".json") + ".log", text)
        except CloudError as error:
            self._log.warning("log", code=error.code, message=error.message)


def follow(lines: Iterable[str], progress: Progress, reporter: Reporter) -> str:
    """Feed the playbook's output to the progress, report, and return all of it."""
    kept: list[str] = []
    for line in lines:
        kept.append(line)
        sys.stdout.write(line)
        sys.stdout.flush()
        progress.feed(line)
        reporter.show(progress)
    return "".join(kept)


def command(playbook: Path, extra_vars: Sequence[str], *more: str) -> list[str]:
    argv = [ANSIBLE, "--inventory", "localhost,", "--connection", "local"]
    for item in extra_vars:
        argv += ["--extra-vars", item]
    return [*argv, *more, str(playbook)]


def run(options: argparse.Namespace, reporter: Reporter) -> int:
    """The playbook's exit code, after the last word about it was written."""
    playbook = options.playbook if options.playbook.exists() else Path("ansible") / options.playbook
    environment = {**os.environ, **_ENVIRONMENT}
    progress = Progress()
    reporter.show(progress, force=True)
    listing = subprocess.run(
        command(playbook, options.extra_vars, "--list-tasks"),
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    progress.expect(listing.stdout)
    with subprocess.Popen(
        command(playbook, options.extra_vars),
        env=environment, stdin=subprocess.DEVNULL, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        text = follow(process.stdout or (), progress, reporter)
        status = process.wait()
    paths.LOGS.mkdir(parents=True, exist_ok=True)
    (paths.LOGS / f"{playbook.stem}.log").write_text(text, encoding="utf-8")
    progress.finish(status)
    if status:
        reporter.keep_log(text)
    reporter.show(progress, force=True)
    return status


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slurm-head-boot", description=__doc__)
    parser.add_argument("--playbook", required=True, type=Path)
    parser.add_argument("--extra-vars", action="append", default=[])
    parser.add_argument("--status", required=True, help="s3://BUCKET/KEY of the status object")
    parser.add_argument("--bundle", default="", help="what this run is of, for the status object")
    return parser.parse_args(argv)


def main() -> None:
    options = parse(sys.argv[1:])
    place = urlsplit(options.status)
    region = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION", "us-east-1")
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    store = S3Store(place.netloc, lambda: client("s3", region, endpoint))
    log = runtime.logger("head-boot")
    reporter = Reporter(store, place.path.lstrip("/"), options.bundle, SystemClock(), log)
    status = 1
    try:
        status = run(options, reporter)
    except OSError as error:
        progress = Progress()
        progress.error = f"the playbook can't be run: {error}"
        progress.finish(1)
        reporter.show(progress, force=True)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
