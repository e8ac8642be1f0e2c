"""Command that tests a cluster on AWS, or deletes what such a test left.

python -m tests.aws small|gpu|efa [--cap-usd USD] [--dry-run]
python -m tests.aws clean
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.aws.estimate import estimate, refusal
from tests.aws.place import Place
from tests.aws.run import Workspace, clean, run, say
from tests.aws.sizes import SIZES, sized
from toolkit.errors import ToolkitError
from toolkit.prices import Catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

CAP = "AWS_TEST_CAP_USD"
WORK = Path(__file__).parents[2] / ".aws-test"
USAGE, INTERRUPTED = 2, 130


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    root = argparse.ArgumentParser(prog="python -m tests.aws", description=__doc__)
    root.add_argument("size", choices=[*SIZES, "clean"])
    root.add_argument("--cap-usd", default=os.environ.get(CAP, ""), help=f"default: ${CAP}")
    root.add_argument("--dry-run", action="store_true", help="print the estimate alone")
    root.add_argument("--type", default="", help="another instance type for the nodes")
    root.add_argument("--region", default="us-east-1")
    root.add_argument("--zone", default="us-east-1a")
    root.add_argument("--profile", default="", help="a profile of ~/.aws")
    root.add_argument("--endpoint-url", default="", help="the local cloud's, to try this program")
    root.add_argument("--credentials-file", default="", help="beside --endpoint-url")
    root.add_argument("--minutes", type=float, help="a shorter deadline")
    root.add_argument("--work", type=Path, default=WORK, help=argparse.SUPPRESS)
    return root


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 if the run passed and cleaned up."""
    options = parser().parse_args(argv)
    if options.size == "clean":
        return clean(options.work)
    size = sized(options.size, options.type, options.minutes)
    parts = estimate(size, options.region, Catalogue.bundled())
    sys.stdout.write("".join(f"{part}\n" for part in parts))
    sys.stdout.flush()
    try:
        cap = Decimal(options.cap_usd) if options.cap_usd else None
    except InvalidOperation:
        say(f"{options.cap_usd!r} is no amount in USD")
        return USAGE
    problem = refusal(parts, cap)
    if problem:
        say(f"refused: {problem}")
        return USAGE
    if options.dry_run:
        return 0
    place = Place(
        options.region,
        options.zone,
        options.profile,
        options.endpoint_url,
        options.credentials_file,
    )
    return run(size, place, Workspace(options.work, size.name), parts)


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        raise SystemExit(main(sys.argv[1:]))
    except ToolkitError as error:
        say(f"error: {error.message} [{error.reason}]\n{error.next_step}")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
