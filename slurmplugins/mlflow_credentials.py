"""Write new credentials of MLflow's role, on the head as root. A timer starts it.

slurm-mlflow-credentials --role ARN --region REGION [--endpoint-url URL]
"""

from __future__ import annotations

import argparse
import pwd
import sys
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.assumed_role import AssumedRole
from slurmplugins.cloud.client import client
from slurmplugins.config import paths
from slurmplugins.head import mlflow_credentials
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

OWNER: Final = "mlflow"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slurm-mlflow-credentials")
    parser.add_argument("--role", required=True, help="the ARN of MLflow's role")
    parser.add_argument("--region", required=True)
    parser.add_argument("--endpoint-url", default=None)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse(sys.argv[1:])
    log = program.open_log("mlflow-credentials")

    def work() -> None:
        role = AssumedRole(
            options.role,
            lambda: client("sts", options.region, options.endpoint_url),
            SystemClock(),
        )
        credentials = role.credentials(mlflow_credentials.SESSION_NAME)
        uid = pwd.getpwnam(OWNER).pw_uid
        mlflow_credentials.write(paths.MLFLOW_CREDENTIALS, credentials, uid)
        log.info(LogEvent.MLFLOW_CREDENTIALS_WRITTEN, expires=credentials.expires)

    raise SystemExit(program.run_to_exit_code(log, work))


if __name__ == "__main__":
    main()
