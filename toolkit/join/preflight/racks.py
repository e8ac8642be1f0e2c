"""The needs of job scripts on racks, asked of single racks: `toolkit join check --rack`.

A run that moves, and the copies of its data, run the same job scripts on racks and in the cloud.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from toolkit.errors import HeadCommandFailed
from toolkit.join.preflight.facts import Rack, Unanswered
from toolkit.join.preflight.findings import Hit, Origin, SiteRule
from toolkit.lint.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts

PYTHON: Final = "/usr/bin/python3"
"""stage.sbatch copies by it, unless TOOLKIT_DATA_PYTHON names another."""
FILES: Final = (
    "/shared/jobscripts/lib/preflight.sh",
    "/shared/lib/toolkit/datasets/__main__.py",
    "/shared/env/bin/python",
)
DOCS: Final = "https://boto3.amazonaws.com/v1/documentation/api/latest/guide/quickstart.html"
REQUEUE: Final = "https://slurm.schedmd.com/sbatch.html#OPT_requeue"
SECONDS: Final = 30.0
UNREACHED: Final = frozenset({-1, 255})
"""Exit codes of a command that took too long, and of ssh without a connection."""


class RackRunner(Protocol):
    """A way to run commands on one rack."""

    @property
    def host(self) -> str:
        """Return its name, as `ssh` takes it."""
        ...

    def run(self, argv: Sequence[str], *, timeout: float = 60, stdin: bytes = b"") -> str:
        """Run one argv and return its standard output.

        Raises SiteCommandFailed for any exit code but 0.
        """
        ...


def ask(runner: RackRunner) -> Rack | Unanswered:
    """Ask a rack what job scripts find there. It changes nothing."""
    try:
        has_boto3 = _succeeds(runner, [PYTHON, "-c", "import boto3"])
        missing = [path for path in FILES if not _succeeds(runner, ["/usr/bin/test", "-r", path])]
    except HeadCommandFailed as error:
        return Unanswered(f"the rack {runner.host}", " ".join(error.message.split())[:300])
    return Rack(runner.host, has_boto3=has_boto3, missing=tuple(missing))


def _succeeds(runner: RackRunner, argv: Sequence[str]) -> bool:
    """Return whether a command ends with 0.

    Raises SiteCommandFailed if the rack can't be reached.
    """
    try:
        runner.run(argv, timeout=SECONDS)
    except HeadCommandFailed as error:
        if error.returncode in UNREACHED:
            raise
        return False
    return True


def _boto3(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for rack in facts.racks:
        if not rack.has_boto3:
            text = f"{PYTHON} of {rack.host} has no boto3: stage-in and stage-out can't reach S3"
            fix = "Install it on each rack, or name a Python that has it as TOOLKIT_DATA_PYTHON."
            origin = Origin(f"{rack.host}: {PYTHON} -c 'import boto3'")
            yield Hit(origin, text, fix, "apt-get install python3-boto3")


def _files(facts: PreflightFacts, _cloud: CloudSide) -> Iterator[Hit]:
    for rack in facts.racks:
        if rack.missing:
            folders = sorted({"/".join(path.split("/")[:3]) for path in rack.missing})
            text = f"{rack.host} can't read {', '.join(folders)}: a job script ends there at once"
            fix = "Copy the toolkit's folders to the racks' filesystem; /shared/env is an"
            fix += " environment with PyTorch."
            copies = [_COPIES[folder] for folder in folders]
            yield Hit(Origin(f"{rack.host}: test -r"), text, fix, "\n".join(copies))


_COPIES: Final = {
    "/shared/jobscripts": "cp -r jobscripts /shared/",
    "/shared/lib": "install -d /shared/lib && cp -r toolkit /shared/lib/",
    "/shared/env": "python3 -m venv /shared/env && /shared/env/bin/pip install torch",
}
_W: Final = Severity.WARNING
RULES: Final = (
    SiteRule("rack-boto3", _W, DOCS, _boto3),
    SiteRule("rack-files", _W, REQUEUE, _files),
)
