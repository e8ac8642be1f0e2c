"""Prolog and Epilog of slurmd: write a job's token before its first task, remove it at the end.

It never fails: slurmd would drain the node. A job without a token has no credentials, and its calls
of S3 say so.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sys

from slurmplugins.config import node as node_config, paths
from slurmplugins.node import job_tokens
from slurmplugins.system import program
from slurmplugins.system.log_events import LogEvent

EPILOG_CONTEXT = "epilog_slurmd"
"""The value of SLURM_SCRIPT_CONTEXT in an Epilog (prep_script_slurmd.c)."""


def main() -> None:
    """Exit with 0 in every case: slurmd would drain the node otherwise."""
    try:
        if os.environ.get("SLURM_SCRIPT_CONTEXT") == EPILOG_CONTEXT:
            job_tokens.revoke(paths.JOB_TOKENS, job_tokens.job_of(os.environ))
        elif node_config.load().job_role is not None:
            # The account of this node: an unknown uid has no name, and no prefix in S3.
            user = pwd.getpwuid(int(os.environ.get("SLURM_JOB_UID", ""))).pw_name
            job_tokens.grant(paths.JOB_TOKENS, job_tokens.identity_of(os.environ, user))
    except Exception as error:  # noqa: BLE001 - no token harms one job, a failed Prolog the node
        _log_failure(error)
    sys.exit(0)


def _log_failure(error: Exception) -> None:
    # What kept the token from being written, such as a full disk, may keep the log from it too.
    with contextlib.suppress(Exception):
        log = program.open_log("job-token")
        log.failure(LogEvent.JOB_TOKEN_FAILED, message=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
