"""The parser of sacct's text: rows become attempts.

The call is `slurmplugins.slurm.sacct`, since a program on the head makes it as well.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from slurmplugins.errors import BadName, SlurmError
from slurmplugins.model.hostlist import expand
from slurmplugins.slurm import sacct as call
from toolkit.accounting.attempts import Attempt
from toolkit.accounting.errors import SacctError
from toolkit.accounting.set_aside import SetAside
from toolkit.accounting.tres import Tres

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.head_runner import Runner

_TIMEOUT = 300.0
# 64 bits have 20 digits.
_LONGEST_NUMBER = 20
LATEST_SECOND = 10**11
# What sacct prints for a time that is not there. Any other text that is no time is damage.
NO_TIMES = ("", "Unknown", "None")
# The commas of a hostlist that are not within brackets.
_BETWEEN_NODES = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True)
class SacctContent:
    """The attempts of one call, and the rows that are not among them."""

    attempts: tuple[Attempt, ...] = ()  # by submission
    set_aside: tuple[SetAside, ...] = ()


delimiter, argv = call.delimiter, call.argv


def fields(help_text: str) -> tuple[str, ...]:
    """Return the fields to request, given `sacct --helpformat`. Raises SacctError."""
    try:
        return call.fields(help_text)
    except SlurmError as error:
        raise SacctError(error.message) from error


def read(runner: Runner, since: int, until: int, token: str, *, cluster: str = "") -> SacctContent:
    """Return every attempt of the cluster that overlaps since … until.

    The token must be unguessable.
    """
    names = fields(runner.run([*call.ENVIRONMENT, "sacct", "--helpformat"]))
    text = runner.run(argv(names, since, until, token), timeout=_TIMEOUT)
    return parse(text, names, token, cluster=cluster)


def parse(text: str, names: Sequence[str], token: str, *, cluster: str = "") -> SacctContent:
    """Parse the attempts. Raises SacctError.

    A DBIndex that is there twice counts once, with its later row. A row without one is
    set aside, as is one with a time or an amount that can't be read. So are the rows of
    other clusters, if the cluster is given. A federation's sacct lists them too, and each
    cluster counts DBIndexes and job ids for itself.
    """
    missing = [name for name in (*call.REQUIRED, *call.FREE_TEXT) if name not in names]
    if missing:
        raise SacctError(f"the rows have no field {', '.join(missing)}")
    attempts = {}
    set_aside = []
    rows_elsewhere: Counter[str] = Counter()
    for number, row in enumerate(rows(text, names, token), start=1):
        if cluster and row["Cluster"] != cluster:
            rows_elsewhere[row["Cluster"]] += 1
            continue
        attempt = _attempt(tuple(row), tuple(row.values()))
        if isinstance(attempt, str):
            set_aside.append(SetAside(f"row {number} of sacct", attempt))
        else:
            attempts[attempt.key] = attempt
    for name, count in sorted(rows_elsewhere.items()):
        plural = "s" if count > 1 else ""
        reason = f"of the cluster {name[:40]!r}"
        set_aside.append(SetAside(f"{count} row{plural} of sacct", reason, has_unknown_cost=False))
    ordered = sorted(attempts.values(), key=lambda attempt: (attempt.submitted or 0, attempt.key))
    return SacctContent(tuple(ordered), tuple(set_aside))


def rows(text: str, names: Sequence[str], token: str) -> list[dict[str, str]]:
    """Cut the text into rows. Raises SacctError."""
    try:
        return call.rows(text, names, token)
    except SlurmError as error:
        raise SacctError(error.message) from error


@lru_cache(maxsize=8192)  # each page repeats the rows of what runs on
def _attempt(names: tuple[str, ...], values: tuple[str, ...]) -> Attempt | str:
    """Return the attempt of a row, or why it is none."""
    row = dict(zip(names, values, strict=True))
    try:
        return _parsed(row)
    except _FieldError as error:
        field = str(error)
        return f"{row[field][:40]!r} is no {field} (job {row['JobIDRaw'][:20]!r})"


class _FieldError(Exception):
    """A field's text can't be read. Its message is the field's name."""


def _parsed(row: Mapping[str, str]) -> Attempt:
    """Return the attempt of a row. Raises _FieldError."""
    return Attempt(
        key=_number(row, "DBIndex"),
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
        submitted=_epoch_second(row, "Submit"),
        eligible=_epoch_second(row, "Eligible"),
        started=_epoch_second(row, "Start"),
        ended=_epoch_second(row, "End"),
        nodes=nodes(row["NodeList"]),
        other_nodes=other_nodes(row["NodeList"]),
        tres=_tres(row),
        comments=f"{row['AdminComment']}\n{row['Comment']}",
        node_count=_number(row, "NNodes") if row["NNodes"] else 0,
        qos=row["QOS"],
        # Slurm puts a star before a key that is the user's default one.
        project=row.get("WCKey", "").removeprefix("*"),
    )


def _epoch_second(row: Mapping[str, str], field: str) -> int | None:
    """Return epoch seconds; None for 0 and where sacct has no time."""
    text = row.get(field, "")  # a version may lack it
    second = _whole_number(text)
    if second is not None and second < LATEST_SECOND:
        return second or None
    if text in NO_TIMES:
        return None
    raise _FieldError(field)


def _number(row: Mapping[str, str], field: str) -> int:
    number = _whole_number(row[field])
    if number is None:
        raise _FieldError(field)
    return number


def _tres(row: Mapping[str, str]) -> Tres:
    text = row["AllocTRES"]
    if not Tres.is_readable(text):
        raise _FieldError("AllocTRES")
    return Tres.parse(text)


def _whole_number(text: str) -> int | None:
    is_number = len(text) <= _LONGEST_NUMBER and text.isascii() and text.isdigit()
    return int(text) if is_number else None


@lru_cache(maxsize=1024)  # a cluster's rows have few codes
def exit_code(text: str) -> int:
    """Return the code of `code:signal`; 0 for what is none."""
    code = re.match(r"([0-9]{1,10})(?::[0-9]+)?$", text)
    return int(code[1]) if code else 0


@lru_cache(maxsize=65_536)  # and the same nodes again and again
def nodes(text: str) -> tuple[str, ...]:
    """Return the nodes that can be instances.

    Names of another pattern (racks, `None assigned`) can't.
    """
    names: list[str] = []
    for part in _BETWEEN_NODES.split(text):
        with suppress(BadName):
            names.extend(expand(part))
    return tuple(names)


@lru_cache(maxsize=65_536)
def other_nodes(text: str) -> tuple[str, ...]:
    """Return names that can't be instances, such as a rack's nodes."""
    names: list[str] = []
    for part in _BETWEEN_NODES.split(text):
        try:
            expand(part)
        except BadName:
            # It brings the models of cluster.yaml: a third of a second, and few clusters need it.
            from toolkit.config.rack_names import rack_nodes

            with suppress(ValueError):  # such as `None assigned`
                names.extend(rack_nodes(part))
    return tuple(names)
