"""Run the playbook on this instance and report its progress to S3, for `toolkit` to show.

    python3 -m slurmplugins.head_boot --playbook site.yml --extra-vars @rendered/vars.json \\
        --status s3://BUCKET/status/head.json [--bundle SHA]

The working directory is the unpacked bundle. Region and endpoint come from the environment. The
status object has state (running, ok or failed), phase, task, done, total, error, log_tail, at and
bundle. It is written at most once a second. The whole log goes beside it when the run fails.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from slurmplugins.cloud.client import client
from slurmplugins.cloud.stores import S3Store
from slurmplugins.head.playbook import Progress, Reporter, run_playbook
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slurm-head-boot", description=__doc__)
    parser.add_argument("--playbook", required=True, type=Path)
    parser.add_argument("--extra-vars", action="append", default=[])
    parser.add_argument("--status", required=True, help="s3://BUCKET/KEY of the status object")
    parser.add_argument("--bundle", default="", help="what this run is of, for the status object")
    return parser.parse_args(argv)


def main() -> None:
    options = parse(sys.argv[1:])
    status_url = urlsplit(options.status)
    region = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION", "us-east-1")
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    store = S3Store(status_url.netloc, lambda: client("s3", region, endpoint))
    log = program.open_log("head-boot")
    reporter = Reporter(store, status_url.path.lstrip("/"), options.bundle, SystemClock(), log)
    status = 1
    try:
        status = run_playbook(options, reporter)
    except OSError as error:
        progress = Progress()
        progress.error = f"the playbook can't be run: {error}"
        progress.finish(1)
        reporter.write_progress(progress, force=True)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
