"""Attempts that SQL doesn't read itself: resized jobs, and jobs whose end slurmdbd never learned.

Few jobs are either. Their rows go through the functions of the exact engine, and the answers into
the table `tries`.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.attempt_instances import Usage
from toolkit.accounting.attempts import REQUEUE_EXIT, RESIZED, Attempt, with_resizes
from toolkit.accounting.runaways import ends_of_runaways
from toolkit.accounting.tres import Tres
from toolkit.usage.database import quoted

if TYPE_CHECKING:
    from toolkit.usage.database import Database

_NO_TRES = Tres(0, 0, 0)  # neither a resize nor a runaway asks for it
_OPEN = "ended IS NULL AND state = 'RUNNING'"
_VALUES = (("attempt", "UBIGINT"), ("second", "BIGINT"))


def apply_resizes(database: Database) -> None:
    """Set the second from which resized attempts lost their work."""
    attempts = with_resizes(_job_rows(database, f"state = {quoted(RESIZED)}"))
    rows = [(item.key, item.lost_from()) for item in attempts if item.state == RESIZED]
    if rows:
        database.table("resized", _VALUES, list(rows))
        database.run(
            """UPDATE tries SET lost_from = r.second
            FROM resized AS r WHERE tries.attempt = r.attempt"""
        )


def end_runaways(database: Database, until: int) -> bool:
    """Set the ends of runaway attempts; return whether there are any."""
    attempts = [item for item in _job_rows(database, _OPEN) if item.begun < until]
    ends = ends_of_runaways(attempts, _usages_beside_open(database)) if attempts else {}
    if ends:
        database.table("runaways", _VALUES, list(ends.items()))
        database.run(
            """UPDATE tries SET ended = r.second,
                certainly_ran = certainly_ran AND r.second <> started
            FROM runaways AS r WHERE tries.attempt = r.attempt"""
        )
    return bool(ends)


def _job_rows(database: Database, condition: str) -> list[Attempt]:
    """Return all attempts of the jobs of which one meets the condition."""
    found = f"SELECT job_id FROM attempts WHERE db_index IS NOT NULL AND {condition}"  # noqa: S608
    if not database.rows(f"{found} LIMIT 1"):  # asking for jobs reads all attempts twice
        return []
    return [
        Attempt(
            key=key,
            job_id=job_id,
            job=job_id,
            name="",
            user=user,
            account="",
            partition="",
            state=state,
            exit_codes=(REQUEUE_EXIT,) if requeue_requested else (),
            restarts=restarts,
            submitted=submitted,
            started=started,
            ended=ended,
            nodes=(),
            tres=_NO_TRES,
            comments=" ".join(f"toolkit:checkpoint={mark}" for mark in marks.split(",") if mark),
        )
        for (
            key, job_id, user, state, requeue_requested, restarts, submitted, started, ended, marks
        ) in database.rows(
            f"""SELECT db_index, job_id, user_name, state, requeue_requested, restarts, submitted,
                started, ended, coalesce(checkpoint_marks, '')
            FROM attempts SEMI JOIN ({found}) USING (job_id)
            WHERE db_index IS NOT NULL ORDER BY db_index"""  # noqa: S608  # our own conditions
        )
    ]  # fmt: skip


def _usages_beside_open(database: Database) -> dict[str, list[Usage]]:
    """Return the usages of instances with an open attempt.

    The keys are the instances' numbers.
    """
    usages: dict[str, list[Usage]] = defaultdict(list)
    for number, attempt, start, end, above, below in database.rows(
        f"""SELECT i, attempt, u_start, u_end, above, below
        FROM usages SEMI JOIN (
            SELECT i FROM usages
                SEMI JOIN (SELECT db_index AS attempt FROM attempts WHERE {_OPEN}) USING (attempt)
        ) USING (i)"""  # noqa: S608
    ):
        usages[str(number)].append(Usage(attempt, start, end, Fraction(above, below), None))
    return usages
