"""Keep the instance metadata service to root, and to the users that `--allow` names.

slurm-imds-access [--allow USER ...] [--check]

It adds the rules, and tries them as other users. It exits with 1 if one of these is not refused.
`--check` only tries.
"""

from __future__ import annotations

import argparse
import pwd
import sys
from typing import TYPE_CHECKING

from slurmplugins.config import paths
from slurmplugins.errors import BadName
from slurmplugins.system import imds_access, program
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slurm-imds-access")
    parser.add_argument("--allow", action="append", default=[], metavar="USER")
    parser.add_argument("--check", action="store_true", help="add no rule")
    return parser.parse_args(arguments)


def uids_of(names: Iterable[str]) -> frozenset[int]:
    """Return the uids of root and of these users.

    Raises BadName for a user that does not exist.
    """
    uids = {imds_access.ROOT}
    for name in names:
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError as error:
            raise BadName(f"there is no user {name!r}") from error
    return frozenset(uids)


def main() -> None:
    options = parse(sys.argv[1:])
    log = program.open_log("imds-access")

    def work() -> None:
        allowed = uids_of(options.allow)
        services = imds_access.services(paths.PROC)
        if not options.check:
            imds_access.restrict(SystemRunner(), services, allowed)
        imds_access.check(services, allowed)
        log.info(LogEvent.IMDS_ACCESS_RESTRICTED, allowed=sorted(allowed))

    raise SystemExit(program.run_to_exit_code(log, work))


if __name__ == "__main__":
    main()
