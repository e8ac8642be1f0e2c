"""Slurm's key on the head node.

slurm-key fetch SECRET REGION [ENDPOINT]  Write the key files; print `changed` or `unchanged`.
slurm-key take SECRET REGION [ENDPOINT]   Also have daemons and nodes take the keys. Print JSON:
                                          the generation, and the nodes that lack it.

The playbook calls the first, `toolkit secrets rotate` the second, until no node lacks the keys.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.client import client
from slurmplugins.cloud.stores import SecretStore
from slurmplugins.config import paths
from slurmplugins.errors import BadName, EngineError
from slurmplugins.head.slurm_key import HeadKey
from slurmplugins.slurm import login_reports
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner

if TYPE_CHECKING:
    from slurmplugins.model.login_node import LoginNodeReport

COMMANDS: Final = ("fetch", "take")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parsed command line."""

    command: str
    secret_id: str
    region: str
    endpoint_url: str | None


def main() -> None:
    """Run the command; on failure say why, and exit with 1."""
    try:
        arguments = parse(sys.argv[1:])
        secrets = SecretStore(
            lambda: client("secretsmanager", arguments.region, arguments.endpoint_url)
        )
        key = HeadKey(
            lambda: secrets.get(arguments.secret_id),
            Path("/"),
            paths.LOADED_KEYS_OF_HEAD,
            paths.key_requests(paths.SHARED),
            SystemRunner(),
            SystemClock(),
            _login_nodes,
        )
        if arguments.command == "fetch":
            sys.stdout.write("changed\n" if key.fetch() else "unchanged\n")
        else:
            taken = key.take(ScontrolSlurm(SystemRunner(), paths.SLURM_BIN))
            sys.stdout.write(json.dumps(asdict(taken)) + "\n")
    except (EngineError, OSError) as error:
        raise SystemExit(f"slurm-key: {error}") from error


def _login_nodes() -> tuple[LoginNodeReport, ...]:
    now = SystemClock().now()
    reports = login_reports.read(paths.login_reports(paths.SHARED))
    return tuple(report for report in reports if not report.is_silent(now))


def parse(arguments: list[str]) -> Arguments:
    """Parse the arguments that this module's docstring shows.

    Raises BadName for anything else.
    """
    match arguments:
        case [command, secret_id, region, *rest] if command in COMMANDS and len(rest) < 2:  # noqa: PLR2004
            return Arguments(command, secret_id, region, (rest or [""])[0] or None)
    raise BadName(f"unknown arguments: {' '.join(arguments)[:80]!r}")


if __name__ == "__main__":
    main()
