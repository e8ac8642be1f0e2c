"""The one sacct call, and its parser.

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
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from slurmplugins.errors import BadName
from slurmplugins.model.hostlist import expand
from toolkit.accounting.attempts import Attempt
from toolkit.accounting.errors import SacctError
from toolkit.accounting.set_aside import SetAside
from toolkit.accounting.tres import Tres

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.head_runner import Runner

_REQUIRED = (
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
# 24.11 and later know how often a job was restarted when a row was written.
_OPTIONAL = ("Restarts",)
_FREE_TEXT = ("AdminComment", "Comment", "JobName")
_ENVIRONMENT = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0")
_TIMEOUT = 300.0
# 64 bits have 20 digits.
_WHOLE_NUMBER = re.compile(r"[0-9]{1,20}")
_LATEST_SECOND = 10**11
# The commas of a hostlist that are not within brackets.
_BETWEEN_NODES = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True)
class SacctContent:
    """The attempts of one call, and the rows that are not among them."""

    attempts: tuple[Attempt, ...] = ()  # by submission
    set_aside: tuple[SetAside, ...] = ()


def delimiter(token: str) -> str:
    """Return the text between two fields of one call."""
    return f"\x1f{token}\x1f"


def fields(help_text: str) -> tuple[str, ...]:
    """Return the fields to request, given `sacct --helpformat`.

    An unknown name is an error to sacct. Raises SacctError if a required field is
    missing.
    """
    sacct_fields = set(help_text.split())
    missing_fields = [name for name in (*_REQUIRED, *_FREE_TEXT) if name not in sacct_fields]
    if missing_fields:
        raise SacctError(f"the head node's sacct has no field {', '.join(missing_fields)}")
    return (*_REQUIRED, *(name for name in _OPTIONAL if name in sacct_fields), *_FREE_TEXT)


def argv(names: Sequence[str], since: int, until: int, token: str) -> list[str]:
    """Return the call for attempts that overlap since … until.

    Both are epoch seconds.
    """
    return [
        *_ENVIRONMENT,
        "sacct",
        "--allusers",
        "--duplicates",
        "--allocations",
        "--parsable2",
        "--noheader",
        "--noconvert",
        f"--delimiter={delimiter(token)}",
        f"--starttime={_timestamp(since)}",
        f"--endtime={_timestamp(until)}",
        f"--format={','.join(names)}",
    ]


def read(runner: Runner, since: int, until: int, token: str) -> SacctContent:
    """Return every attempt that overlaps since … until.

    The token must be unguessable.
    """
    names = fields(runner.run([*_ENVIRONMENT, "sacct", "--helpformat"]))
    text = runner.run(argv(names, since, until, token), timeout=_TIMEOUT)
    return parse(text, names, token)


def parse(text: str, names: Sequence[str], token: str) -> SacctContent:
    """Parse the attempts.

    A DBIndex that is there twice counts once, with its later row. A row without one is
    set aside.
    """
    attempts = {}
    set_aside = []
    for number, row in enumerate(rows(text, names, token), start=1):
        attempt = _attempt(row)
        if attempt is None:
            reason = f"{row['DBIndex'][:40]!r} is no DBIndex (job {row['JobIDRaw'][:20]!r})"
            set_aside.append(SetAside(f"row {number} of sacct", reason))
        else:
            attempts[attempt.key] = attempt
    ordered = sorted(attempts.values(), key=lambda attempt: (attempt.submitted or 0, attempt.key))
    return SacctContent(tuple(ordered), tuple(set_aside))


def rows(text: str, names: Sequence[str], token: str) -> list[dict[str, str]]:
    """Cut the text into rows; free text may hold any characters.

    Line breaks and pipes are among them. Between two rows there is only a line break,
    so the last field of one and the first of the next come as one piece. The first
    field is a number, hence it follows the piece's last line break.
    """
    pieces = text.split(delimiter(token))
    if len(pieces) == 1:
        if text.strip():
            raise SacctError("sacct printed no field delimiter")
        return []
    fields_a_row = len(names) - 1
    if (len(pieces) - 1) % fields_a_row:
        raise SacctError("sacct's output is incomplete: a row has too few fields")
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


def _attempt(row: Mapping[str, str]) -> Attempt | None:
    key = _whole_number(row["DBIndex"])
    if key is None:
        return None
    return Attempt(
        key=key,
        job_id=row["JobIDRaw"],
        job=row["JobID"],
        name=row["JobName"],
        user=row["User"],
        account=row["Account"],
        partition=row["Partition"],
        # "CANCELLED by 1001" names the user who did it.
        state=row["State"].split(" ")[0].rstrip("+"),
        exit_codes=tuple(exit_code(row[name]) for name in ("ExitCode", "DerivedExitCode")),
        restarts=_whole_number(row.get("Restarts", "")),
        submitted=_epoch_second(row["Submit"]),
        started=_epoch_second(row["Start"]),
        ended=_epoch_second(row["End"]),
        nodes=nodes(row["NodeList"]),
        tres=Tres.parse(row["AllocTRES"]),
        comments=f"{row['AdminComment']}\n{row['Comment']}",
        node_count=_whole_number(row["NNodes"]) or 0,
    )


def _epoch_second(text: str) -> int | None:
    """Return epoch seconds; None for 0 and what is no time."""
    second = _whole_number(text)
    return second if second and second < _LATEST_SECOND else None


def _whole_number(text: str) -> int | None:
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def exit_code(text: str) -> int:
    """Return the code of `code:signal`; 0 for what is none."""
    code = re.match(r"([0-9]{1,10})(?::[0-9]+)?$", text)
    return int(code[1]) if code else 0


def nodes(text: str) -> tuple[str, ...]:
    """Return the nodes that can be instances.

    Names of another pattern (racks, `None assigned`) can't.
    """
    names: list[str] = []
    for part in _BETWEEN_NODES.split(text):
        with suppress(BadName):
            names.extend(expand(part))
    return tuple(names)


def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
