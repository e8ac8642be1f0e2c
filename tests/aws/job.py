"""The job of a run: submitted as a user, waited for, its output read in sections."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.aws.commands import CommandFailed
from tests.aws.place import USER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.aws.commands import Deadline
    from tests.aws.sizes import Expectation, Size
    from toolkit.deploy.head import Head

HOME = f"/shared/home/{USER}"
POLL_SECONDS = 5.0
UNFINISHED = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"}
HEADING = re.compile(r"^== (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job that ended, with the seconds until it began and its output's sections."""

    state: str
    wait_seconds: int
    run_seconds: int
    sections: Mapping[str, str]


def submit(head: Head, size: Size) -> str:
    """Write the size's scripts to the head and submit the last.

    Returns the job id.
    """
    as_user = ["runuser", "-u", USER, "--"]
    script = ""
    for path in size.scripts:
        script, text = f"{HOME}/{path.name}", path.read_text(encoding="utf-8")
        head.run([*as_user, "sh", "-c", 'printf %s "$2" > "$1"', "sh", script, text])
    wanted = [f"--nodes={size.nodes}", f"--chdir={HOME}", "--output=slurm-%j.out"]
    if size.gpus:
        wanted.append(f"--gpus-per-node={size.gpus}")
    answer = head.run([*as_user, "sbatch", "--parsable", *wanted, script])
    job = answer.strip().split(";")[0]
    if not job.isdigit():
        raise CommandFailed(f"sbatch answered {answer!r}")
    return job


def wait(
    head: Head, job: str, deadline: Deadline, sleep: Callable[[float], None] = time.sleep
) -> JobResult:
    """Return the job once it has ended. Raises CommandFailed at the deadline."""
    while True:
        text = head.run(["scontrol", "show", "job", job, "--json"])
        record = next(iter(json.loads(text)["jobs"]), None)
        if record is not None and not UNFINISHED & set(record["job_state"]):
            output = head.run(["cat", f"{HOME}/slurm-{job}.out"])
            return _result(record, output)
        if not deadline.left:
            raise CommandFailed(f"job {job} has not ended at the deadline")
        sleep(POLL_SECONDS)


def sections(output: str) -> dict[str, str]:
    """Return the text below each heading `== NAME`.

    The texts of several nodes are joined.
    """
    parts = HEADING.split(output)
    found: dict[str, str] = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        found[name] = f"{found[name]}\n{text.strip()}" if name in found else text.strip()
    return found


def disappointments(
    expectations: Iterable[Expectation], seen: Mapping[str, str], *, on_aws: bool
) -> tuple[str, ...]:
    """Return what should have been seen and was not."""
    return tuple(
        f"{one.section}: expected {one.pattern!r}, found {seen.get(one.section, 'nothing')!r}"
        for one in expectations
        if (on_aws or not one.on_aws_only)
        and not re.search(one.pattern, seen.get(one.section, ""), re.MULTILINE)
    )


def _result(record: Mapping[str, Any], output: str) -> JobResult:
    submitted, started, ended = (
        _seconds(record[key]) for key in ("submit_time", "start_time", "end_time")
    )
    state = "+".join(record["job_state"])
    return JobResult(state, started - submitted, ended - started, sections(output))


def _seconds(value: Any) -> int:
    """Return a time of Slurm's JSON, a number or a table."""
    return int(value["number"]) if isinstance(value, dict) else int(value)
