"""Tells a list that Slurm gave from its refusal and its silence. Pure.

`scontrol show job --json` of 24.11.5 exits 0 where slurmctld can't be reached: it lists no job, and
standard error alone says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins import safe_json
from slurmplugins.errors import SlurmError, SlurmRefused, SlurmUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.runner import Completed

NO_SUCH_JOB: Final = "nvalid job id"
"""Part of slurmctld's words for a job that it does not know."""

_UNREACHABLE: Final = (
    "unable to contact", "connect failure", "connection refused", "timed out", "timeout",
    "not responding", "longer than", "socket", "zero bytes",
)  # fmt: skip
"""Words, in lower case, of a scontrol that got no answer."""

_UNLOADED: Final = "slurm_load_"
"""Begins the name of the call that failed, which scontrol and squeue put before the error."""


def records(argv: Sequence[str], done: Completed, key: str) -> list[Any]:
    """Read the records under `key`. Raises SlurmUnreachable or SlurmRefused."""
    if done.returncode:
        raise failure(argv, done)
    try:
        data = safe_json.loads(done.stdout)
    except ValueError as error:
        raise SlurmUnreachable(f"{argv[0]}: answer is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("errors"):
        raise SlurmUnreachable(f"{argv[0]}: {str(data)[:400]}")
    value = data.get(key)
    if not isinstance(value, list):
        raise SlurmUnreachable(f"no {key!r} in Slurm's answer")
    if not value and _UNLOADED in done.stderr:
        raise failure(argv, done)
    return value


def failure(argv: Sequence[str], done: Completed) -> SlurmError:
    """Tell by its words whether Slurm refused or was not reached."""
    said = done.stderr or done.stdout
    message = f"{' '.join(argv[:3])[:120]}: {said.strip()[-400:]}"
    unreachable = any(words in said.lower() for words in _UNREACHABLE)
    return (SlurmUnreachable if unreachable else SlurmRefused)(message)
