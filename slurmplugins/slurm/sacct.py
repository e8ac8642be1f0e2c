"""The one call of sacct for accounting, and how its text is cut into rows.

The call's flags and their reasons:

* `-D`: every attempt. Without it only the newest row of a requeued job is shown. *
`-X`: allocations, not steps; steps cost slurmdbd one query for each job. * `-P
--noconvert`: plain columns and exact units. JSON takes ten times the time and 40 times
the memory, and has no attempt key in 24.11. * no `-T`: it gets suspended and unfinished
jobs wrong. Times are clipped in our own code. * `TZ=UTC SLURM_TIME_FORMAT=%s`: sacct
otherwise prints local wall time, which repeats in autumn.

Names and comments are free text of the users, and sacct escapes nothing. Therefore the
delimiter holds a random token that is made for one call, so nobody can forge a row. The
one field that may span lines next to the row's end is the last.

Eight random characters do for that: a user would have to guess one of 2·10^14 before the
call. A longer token would be most of the text.
"""

from __future__ import annotations

import secrets
import string
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUIRED: Final = (
    "DBIndex",
    "JobIDRaw",
    "JobID",
    "Cluster",
    "Partition",
    "Account",
    "User",
    "QOS",
    "Submit",
    "Start",
    "End",
    "State",
    "ExitCode",
    "DerivedExitCode",
    "NNodes",
    "AllocTRES",
    "NodeList",
)
OPTIONAL: Final = ("Restarts", "Eligible", "WCKey")
"""Fields that a version, or a page of an earlier toolkit, may lack.

24.11 and later know how often a job was restarted at a row. slurmdbd keeps the key of
`sbatch --wckey` also without TrackWCKey (as_mysql_job.c).
"""
FREE_TEXT: Final = ("AdminComment", "Comment", "JobName")
ENVIRONMENT: Final = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0")
SHOW_INSTANCES: Final = (
    *("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s"),
    *("sacctmgr", "--noheader", "--parsable2", "show", "instance"),
)
"""The first words of the call for Slurm's own instance accounting."""
INSTANCE_FIELDS: Final = (
    *("Cluster", "NodeName", "Start", "End", "InstanceId", "InstanceType"),
    "Extra",  # free text, so it is the last
)
INSTANCE_LOOK_BACK: Final = 30 * 86_400
"""Seconds before a time from which Slurm is asked for instances that may have lived on then."""
_FLAGS: Final = (
    "--allusers",
    "--duplicates",
    "--allocations",
    "--parsable2",
    "--noheader",
    "--noconvert",
)
_TOKEN_CHARACTERS: Final = string.ascii_letters + string.digits
_TOKEN_LENGTH: Final = 8


def new_token() -> str:
    """Return a token for one call, which nobody can guess."""
    return "".join(secrets.choice(_TOKEN_CHARACTERS) for _ in range(_TOKEN_LENGTH))


def delimiter(token: str) -> str:
    """Return the text between two fields of one call."""
    return f"\x1f{token}\x1f"


def fields(help_text: str) -> tuple[str, ...]:
    """Return the fields to request, given `sacct --helpformat`.

    An unknown name is an error to sacct. Raises SlurmRefused if a required field is
    missing.
    """
    sacct_fields = set(help_text.split())
    missing_fields = [name for name in (*REQUIRED, *FREE_TEXT) if name not in sacct_fields]
    if missing_fields:
        raise SlurmRefused(f"the head node's sacct has no field {', '.join(missing_fields)}")
    return (*REQUIRED, *(name for name in OPTIONAL if name in sacct_fields), *FREE_TEXT)


def argv(
    names: Sequence[str], since: int, until: int, token: str, program: str = "sacct"
) -> list[str]:
    """Return the call for attempts that overlap since … until.

    Both are epoch seconds.
    """
    return [
        *ENVIRONMENT,
        program,
        *_FLAGS,
        f"--delimiter={delimiter(token)}",
        f"--starttime={_timestamp(since)}",
        f"--endtime={_timestamp(until)}",
        f"--format={','.join(names)}",
    ]


def instances_argv(cluster: str, since: int, program: str = "sacctmgr") -> list[str]:
    """Return the call for all instances of Slurm's that began since then."""
    return [
        *(program if word == "sacctmgr" else word for word in SHOW_INSTANCES),
        f"clusters={cluster}",
        f"start={_timestamp(max(since, 0))}",
        f"format={','.join(INSTANCE_FIELDS)}",
    ]


def rows(text: str, names: Sequence[str], token: str) -> list[dict[str, str]]:
    """Cut the text into rows; free text may hold any characters.

    Line breaks and pipes are among them. Between two rows there is only a line break,
    so the last field of one and the first of the next come as one piece. The first
    field is a number, hence it follows the piece's last line break. Raises SlurmRefused
    for text that is incomplete.
    """
    pieces = text.split(delimiter(token))
    if len(pieces) == 1:
        if text.strip():
            raise SlurmRefused("sacct printed no field delimiter")
        return []
    fields_a_row = len(names) - 1
    if (len(pieces) - 1) % fields_a_row:
        raise SlurmRefused("sacct's output is incomplete: a row has too few fields")
    parsed_rows = []
    first_field = pieces[0].rpartition("\n")[2]
    for start in range(1, len(pieces), fields_a_row):
        middle_fields = pieces[start : start + fields_a_row - 1]
        last_piece = pieces[start + fields_a_row - 1]
        is_last = start + fields_a_row >= len(pieces)
        last_field, _, next_first_field = (
            (last_piece.removesuffix("\n"), "", "") if is_last else last_piece.rpartition("\n")
        )
        parsed_rows.append(dict(zip(names, (first_field, *middle_fields, last_field), strict=True)))
        first_field = next_first_field
    return parsed_rows


def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def second(text: str) -> int | None:
    """Return a time of sacct; None for a missing or damaged one."""
    is_time = text.isascii() and text.isdigit() and len(text) <= len(str(2**33))
    return int(text) or None if is_time else None
