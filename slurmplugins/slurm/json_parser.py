"""Parsers for the JSON of scontrol and squeue, for all versions of Slurm's data parsers. No I/O.

Each record is read by itself. A record with a malformed field becomes UNREADABLE, so that no
decision is based on it. It keeps its name or number where that can be read.

An empty list must not be confused with a refusal or with silence. `scontrol show job --json` of
24.11.5 exits 0 and lists no job when slurmctld can't be reached. Standard error may be empty too.
Therefore `slurmplugins.slurm.scontrol.read_jobs` asks again in text.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import SlurmError, SlurmRefused, SlurmUnreachable
from slurmplugins.model import json_input
from slurmplugins.model.json_input import finite
from slurmplugins.model.node import UNREADABLE, EndedJob, Job, JobId, Node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.system.command import CommandResult


_DIGITS: Final = 20
"""Digits of a number written as text; Slurm's largest numbers have as many."""

_INFINITE: Final = (float("inf"), float("-inf"))

NO_SUCH_JOB: Final = "nvalid job id"
"""Part of slurmctld's error message for a job that it does not know."""

_UNREACHABLE: Final = (
    "unable to contact", "connect failure", "connection failure", "send failure", "receive failure",
    "shutdown failure", "connection refused", "connection reset", "broken pipe", "not connected",
    "no route to host", "network is unreachable", "timed out", "timeout", "not responding",
    "longer than", "socket", "zero bytes", "protocol authentication error", "in standby mode",
    "rate limit exceeded",
)  # fmt: skip
"""Words, in lower case, in scontrol's error message when slurmctld did not answer.

They are Slurm's own (`slurm_errtab` in slurm_errno.c) and the C library's for a lost connection.
docs/testing.md says which a restart of slurmctld was seen to cause.
"""

_LOAD_FAILURE: Final = "slurm_load_"
"""Begins the name of the failed call, which scontrol and squeue print before the error."""

_TASK_LIST: Final = re.compile(r"[0-9][0-9,:%.-]{0,199}", re.ASCII)


def number(value: object) -> float | None:
    """Return a number, or None if it is unset, infinite or malformed.

    It may be plain, text, or {set, infinite, number} as newer data parsers write it.
    """
    with contextlib.suppress(ValueError):
        return strict_number(value)
    return None


def strict_number(value: object) -> float | None:
    """Return a number, or None if it is unset or infinite.

    Raises ValueError if it is malformed.
    """
    if isinstance(value, dict):
        is_number = value.get("set", True) and not value.get("infinite")
        value = value.get("number") if is_number else None
    if isinstance(value, str):
        return float(parse_digits(value))
    return None if value is None or value in _INFINITE else finite(value)


def count(value: object) -> int:
    """Return a whole number >= 0; 0 if unset or infinite.

    Raises ValueError if it is malformed.
    """
    parsed = strict_number(value) or 0.0
    if parsed < 0 or parsed != int(parsed):
        raise ValueError("not a count")
    return int(parsed)


def parse_digits(text: str) -> int:
    """Return a number that is written as text.

    Raises ValueError for any other text.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise ValueError("expected a number, found text")
    return int(text)


def text(value: object) -> str:
    """Return a text, empty if unset.

    Raises ValueError if it is not a text.
    """
    if value is not None and not isinstance(value, str):
        raise ValueError(f"expected text, found {type(value).__name__}")
    return value or ""


def flags(value: object) -> frozenset[str]:
    """Return a record's states in upper case.

    In the JSON of 23.02 and later the states are a list. In text they are joined by `+`, and a
    star after a state means that the node does not answer.
    Raises ValueError if the value is neither.
    """
    words = value if isinstance(value, list) else None
    if words is None:
        words = text(value).replace("*", "+NOT_RESPONDING").replace(",", "+").split("+")
    return frozenset(text(word).upper() for word in words if word)


def node(item: object) -> Node:
    """Return a node, with the state UNREADABLE if a field is malformed.

    If the name is malformed too, it is empty. Raises nothing.
    """
    record: Mapping[str, Any] = item if isinstance(item, dict) else {}
    name = record.get("name")
    name = name if isinstance(name, str) else ""
    unreadable = frozenset({UNREADABLE})
    try:
        return Node(
            name=name,
            flags=(flags(record.get("state")) if name else unreadable) or unreadable,
            reason=text(record.get("reason")),
            instance_id=text(record.get("instance_id")),
            address=text(record.get("address")),
            topology=text(record.get("topology")),
        )
    except ValueError:
        return Node(name, unreadable)


def job(item: object) -> Job:
    """Return a job, with the state UNREADABLE if a field is malformed.

    If the number is malformed too, it is 0. Raises nothing.
    """
    record: Mapping[str, Any] = item if isinstance(item, dict) else {}
    try:
        return Job(
            id=count(record.get("job_id")),
            flags=flags(record.get("job_state")),
            nodes=text(record.get("nodes")),
            restarts=count(record.get("restart_cnt")),
            admin_comment=text(record.get("admin_comment")),
            submitted_at=strict_number(record.get("submit_time")) or 0.0,
        )
    except ValueError:
        parsed_id = number(record.get("job_id")) or 0.0
        return Job(int(parsed_id), frozenset({UNREADABLE}))


def records(argv: Sequence[str], result: CommandResult, key: str) -> list[Any]:
    """Return the records under `key` of an answer.

    Raises SlurmUnreachable or SlurmRefused.
    """
    if result.returncode:
        raise failure(argv, result)
    try:
        data = json_input.loads(result.stdout)
    except ValueError as error:
        raise SlurmUnreachable(f"{argv[0]}: the answer is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("errors"):
        raise SlurmUnreachable(f"{argv[0]}: {str(data)[:400]}")
    value = data.get(key)
    if not isinstance(value, list):
        raise SlurmUnreachable(f"{argv[0]}: the answer has no {key!r}")
    if not value and _LOAD_FAILURE in result.stderr:
        raise failure(argv, result)
    return value


def is_dated(result: CommandResult) -> bool:
    """Return whether slurmctld dated this list of all jobs.

    scontrol's own empty list, without an answer of slurmctld, has `last_update` 0.
    """
    return bool(number(json_input.loads(result.stdout).get("last_update")))


def failure(argv: Sequence[str], result: CommandResult) -> SlurmError:
    """Return the error of a failed command.

    The words of the message tell whether slurmctld refused or was not reached.
    """
    output = result.stderr or result.stdout
    message = f"{' '.join(argv[:3])[:120]}: {output.strip()[-400:]}"
    unreachable = any(phrase in output.lower() for phrase in _UNREACHABLE)
    return (SlurmUnreachable if unreachable else SlurmRefused)(message)


def job_id(record: Mapping[str, Any]) -> JobId:
    """Return the id by which scontrol knows this record's job.

    Pending tasks of an array are known by the array's number.
    """
    array, task = array_job_id(record), _number(record.get("array_task_id"))
    if array and task is not None:
        return JobId(array, task)
    return JobId(_number(record.get("job_id")) or 0)


def job_id_alone(record: Mapping[str, Any]) -> str:
    """Return the id by which `scontrol update` changes this job alone.

    The number of a het job's first component would change all components. `hold` and `requeue`
    do not accept this id: they always act on all components.
    """
    number = _number(record.get("job_id"))
    if number and _number(record.get("het_job_id")) == number:
        return f"{number}+0"
    return str(job_id(record))


def array_job_id(record: Mapping[str, Any]) -> int:
    """Return the number of the job's array, 0 if it has none."""
    return _number(record.get("array_job_id")) or 0


def waiting_tasks(record: Mapping[str, Any]) -> str:
    """Return the pending tasks of this record in squeue's form: `0-3,7%2`."""
    text = record.get("array_task_string")
    has_task_list = array_job_id(record) and job_id(record).task is None and isinstance(text, str)
    return str(text) if has_task_list and _TASK_LIST.fullmatch(str(text)) else ""


def _number(value: object) -> int | None:
    parsed = number(value)
    return None if parsed is None else int(parsed)


def ended_job(item: object) -> EndedJob | None:
    """Return an ended job, or None if it is no batch job.

    The record comes from `scontrol show jobs --json`.
    Raises ValueError for a malformed field: then nothing is known about the job's end.
    """
    if not isinstance(item, dict):
        raise ValueError("not a job")  # noqa: TRY004 - one error for every defect
    if not item.get("batch_flag"):
        return None
    code = item.get("exit_code")
    code = code if isinstance(code, dict) else {}
    exited = not {"SUCCESS", "SIGNALED"} & _status_flags(code.get("status"))
    return EndedJob(
        id=count(item.get("job_id")),
        flags=flags(item.get("job_state")),
        nodes=text(item.get("nodes")),
        ended_at=strict_number(item.get("end_time")) or 0.0,
        code=count(code.get("return_code")) if exited else None,
        requeue=bool(item.get("requeue")),
        admin_comment=text(item.get("admin_comment")),
        started_at=strict_number(item.get("start_time")) or 0.0,
    )


def _status_flags(value: object) -> frozenset[str]:
    return flags(value) if value else frozenset()
