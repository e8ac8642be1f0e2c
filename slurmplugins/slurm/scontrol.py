"""The Slurm port through scontrol and squeue: argv only, JSON in, values out.

Facts about 24.11 that shape it, seen on a real controller:

- `nodeaddr` takes a list that pairs with `nodename`.
- `instanceid` does not: every node would get the whole list. Therefore one scontrol process is fed
  many commands.
- power_down on a node that is powered down already leaves a POWER_DOWN flag that sticks.
- power_down alone on a node that is powering up waits for ResumeTimeout. Therefore such a node is
  set down first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from slurmplugins.errors import SlurmRefused, SlurmUnreachable
from slurmplugins.model.hostlist import expand
from slurmplugins.model.node import REASON_PREFIX
from slurmplugins.slurm import json_parser
from slurmplugins.slurm.json_parser import failure, records
from slurmplugins.slurm.port import NODES_IN_CALL
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.node import EndedJob, Job, Node
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log


_Item = TypeVar("_Item")

READ_TIMEOUT: Final = 30.0
"""Seconds. A busy slurmctld may take its MessageTimeout (10 s by default) and one repeat."""

WRITE_TIMEOUT: Final = 60.0
"""Seconds."""

HET_TIMEOUT: Final = 10.0
"""Seconds. Launches wait for the list of het jobs, and can do without it."""

_COMPONENT: Final = re.compile(r"\s*([0-9]{1,11})\s+([0-9]{1,11})\+[0-9]{1,5}\s*", re.ASCII)
"""A component's own number, then its name: the het job's number, `+`, its index."""

_JOB_STATE: Final = re.compile(
    r"\s*(?P<job>[0-9]{1,11})\s+(?:(?P<het_job>[0-9]{1,11})\+[0-9]{1,5}|\S+)"
    r"\s+(?P<state>[A-Z_]+)\s*",
    re.ASCII,
)
"""A job's number, its name, its state. A component's name begins with the het job's number."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,79}", re.ASCII)

COMMENT_LENGTH: Final = 1000
"""Characters of our lines in an AdminComment, which is stored with every job record."""

_SEPARATOR: Final = " | "
"""Separates the lines of an AdminComment."""


class ScontrolSlurm:
    """An implementation of `Slurm` through scontrol and squeue."""

    def __init__(
        self, runner: Runner, bin_dir: str, *, timeout: float | None = None, log: Log | None = None
    ) -> None:
        self._runner = runner
        self._log = log
        self._logged_ids: set[str] = set()
        self._scontrol = f"{bin_dir}/scontrol"
        self._squeue = f"{bin_dir}/squeue"
        self._read_timeout = timeout or READ_TIMEOUT
        self._write_timeout = timeout or WRITE_TIMEOUT

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for batch in [None] if names is None else _batches(names):
            argv = [
                self._scontrol,
                "show",
                "nodes",
                *([",".join(batch)] if batch else []),
                "--json",
            ]
            nodes += [json_parser.node(item) for item in self._read(argv, "nodes")]
        self._log_unreadable("node", [node.name for node in nodes if not node.readable])
        return tuple(nodes)

    def jobs(self, nodes: Sequence[str] | None = None) -> tuple[Job, ...]:
        argv = [self._squeue, "--json"]
        if nodes is not None and len(nodes) <= NODES_IN_CALL:
            argv.append("--nodelist=" + ",".join(nodes))
        jobs = tuple(json_parser.job(item) for item in self._read(argv, "jobs"))
        self._log_unreadable("job", [str(job.id) for job in jobs if not job.readable])
        if nodes is None:
            return jobs
        # Before 24.05.1 squeue's JSON holds the whole queue and ignores --nodelist.
        node_names = set(nodes)
        return tuple(
            job
            for job in jobs
            if not job.readable or not node_names.isdisjoint(expand(job.nodes, invalid_names=[]))
        )

    def het_jobs(self) -> Mapping[int, int]:
        # As text: the same answer as JSON takes squeue seconds for thousands of jobs.
        matches = (_COMPONENT.fullmatch(line) for line in self._queue_lines("%A %i"))
        return {int(match[1]): int(match[2]) for match in matches if match}

    def begun_jobs(self) -> frozenset[int]:
        # A job with nodes that power up or boot is CONFIGURING.
        states: dict[int, set[str]] = {}
        for line in self._queue_lines("%A %i %T"):
            if match := _JOB_STATE.fullmatch(line):
                states.setdefault(int(match["het_job"] or match["job"]), set()).add(match["state"])
        return frozenset(job for job, found in states.items() if found == {"RUNNING"})

    def _queue_lines(self, columns: str) -> list[str]:
        argv = [self._squeue, "--noheader", f"--format={columns}"]
        result = self._runner.run(argv, timeout=min(self._read_timeout, HET_TIMEOUT))
        if result.returncode:
            raise failure(argv, result)
        return result.stdout.splitlines()

    def assign(self, assignments: Sequence[Assignment]) -> None:
        for batch in _batches(assignments):
            self._update(
                [item.node for item in batch],
                "nodeaddr=" + ",".join(_token(item.address) for item in batch),
            )
            self._feed(
                f"update nodename={item.node} instanceid={_token(item.instance_id)}"
                f" instancetype={_token(item.type)}"
                for item in batch
            )

    def place(self, nodes: Sequence[str], topology: str) -> None:
        for batch in _batches(nodes):
            self._update(batch, f"topology={topology}")

    def down(self, nodes: Sequence[str], reason: str) -> None:
        person_reasons = self._reasons_by_people(nodes)
        for node, person_reason in person_reasons.items():
            self._update([node], "state=down", f"reason={person_reason}")
        for batch in _batches([node for node in nodes if node not in person_reasons]):
            self._update(batch, "state=down", f"reason={plain_text(reason, 200)}")

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        person_reasons = self._reasons_by_people(nodes)
        for batch in _batches([node for node in nodes if node not in person_reasons]):
            self._update(batch, "state=drain", f"reason={plain_text(reason, 200)}")

    def power_down(self, nodes: Sequence[str]) -> None:
        for batch in _batches(nodes):
            self._update(batch, "state=power_down")

    def power_up(self, nodes: Sequence[str]) -> None:
        for batch in _batches(nodes):
            self._update(batch, "state=power_up")

    def resume(self, nodes: Sequence[str]) -> None:
        for batch in _batches(nodes):
            self._update(batch, "state=resume")

    def comment(self, job: int, text: str) -> None:
        record = self._record(job)
        try:
            old_comment = json_parser.text(record.get("admin_comment"))
        except ValueError as error:  # text of other people would be lost
            raise SlurmRefused(f"the AdminComment of job {job} can't be read: {error}") from error
        new_comment = append_line(old_comment, plain_text(text, COMMENT_LENGTH // 2))
        if new_comment != old_comment:
            job_id = json_parser.job_id_alone(record)
            self._write(
                [self._scontrol, "update", f"jobid={job_id}", f"admincomment={new_comment}"]
            )

    def hold(self, job: int) -> None:
        self._write([self._scontrol, "hold", str(json_parser.job_id(self._record(job)))])

    def ended_jobs(self) -> tuple[EndedJob, ...]:
        jobs: list[EndedJob] = []
        for item in read_jobs(self._runner, self._scontrol, timeout=self._read_timeout):
            try:
                job = json_parser.ended_job(item)
            except ValueError:
                self._log_unreadable("job", [str(json_parser.job(item).id)])
            else:
                jobs += [job] if job is not None else []
        return tuple(jobs)

    def requeue(self, job: int) -> None:
        self._write([self._scontrol, "requeue", str(json_parser.job_id(self._record(job)))])

    def _reasons_by_people(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the reasons of the nodes that a person drained."""
        return {node.name: node.reason for node in self.nodes(nodes) if node.drained_by_a_person}

    def _record(self, job: int) -> dict[str, Any]:
        """Return this job's record among the records of its array.

        Raises SlurmRefused if slurmctld does not know the job.
        """
        job_records = read_jobs(self._runner, self._scontrol, job, timeout=self._read_timeout)
        for item in job_records:
            if isinstance(item, dict) and json_parser.number(item.get("job_id")) == job:
                return item
        raise SlurmRefused(f"slurmctld does not know job {job}")

    def _log_unreadable(self, kind: str, ids: Iterable[str]) -> None:
        """Log unreadable records, each once."""
        new_ids = sorted({record_id[:80] for record_id in ids} - self._logged_ids)
        self._logged_ids.update(new_ids)
        if new_ids and self._log is not None:
            self._log.warning(LogEvent.SLURM_RECORDS_REJECTED, kind=kind, ids=new_ids)

    def _update(self, nodes: Sequence[str], *settings: str) -> None:
        self._write([self._scontrol, "update", "nodename=" + ",".join(nodes), *settings])

    def _feed(self, commands: Iterable[str]) -> None:
        """Run many commands through one scontrol.

        A refused command does not stop the rest.
        """
        self._write([self._scontrol], stdin="\n".join(commands) + "\n")

    def _read(self, argv: Sequence[str], key: str) -> list[Any]:
        return records(argv, self._runner.run(argv, timeout=self._read_timeout), key)

    def _write(self, argv: Sequence[str], stdin: str = "") -> None:
        result = self._runner.run(argv, timeout=self._write_timeout, stdin=stdin)
        if result.returncode:
            raise failure(argv, result)


def read_jobs(
    runner: Runner, scontrol: str, job: int | None = None, *, timeout: float
) -> list[Any]:
    """Return scontrol's records of all jobs, or of one.

    With an array's number, these are the records of its tasks. scontrol of 24.11.5 prints the same
    JSON for an unknown job and for a slurmctld that does not answer: no record. The exit code is
    then 0, and standard error may be empty. Only the text form tells the two apart.
    Raises SlurmRefused for an unknown job, or SlurmUnreachable. `timeout` is for each call.
    """
    argv = [scontrol, "show", "jobs"] if job is None else [scontrol, "show", "job", str(job)]
    json_argv = [*argv, "--json"]
    answer = runner.run(json_argv, timeout=timeout)
    job_records = records(json_argv, answer, "jobs")
    if job_records or (job is None and json_parser.is_dated(answer)):
        return job_records
    text_argv = [*argv, "--oneliner"]
    text_answer = runner.run(text_argv, timeout=timeout)
    if text_answer.returncode:
        raise failure(text_argv, text_answer)
    raise SlurmUnreachable(f"{' '.join(json_argv)[:120]}: slurmctld answered only the next call")


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise SlurmRefused(f"scontrol's input can't hold this value: {text[:80]!r}")
    return text


def _batches(items: Sequence[_Item]) -> Iterable[Sequence[_Item]]:
    return (items[start : start + NODES_IN_CALL] for start in range(0, len(items), NODES_IN_CALL))


def plain_text(text: str, length: int) -> str:
    """Return text that a reason or comment can hold.

    It has at most `length` characters, printable ASCII only, no quotes.
    """
    printable = "".join(
        char if " " <= char <= "~" and char not in "\"'`\\" else " " for char in text
    )
    return " ".join(printable.split())[:length]


def append_line(comment: str, line: str) -> str:
    """Return the comment with the line at its end.

    Our lines, without separators, stay within COMMENT_LENGTH: our oldest lines are dropped.
    Other people's text stays. A line that is already the last is not repeated.
    """
    lines = comment.split(_SEPARATOR) if comment else []
    if lines and lines[-1] == line:
        return comment
    own_indexes = [index for index, item in enumerate(lines) if item.startswith(REASON_PREFIX)]
    characters_left = COMMENT_LENGTH - len(line)
    dropped_indexes: set[int] = set()
    for index in reversed(own_indexes):
        characters_left -= len(lines[index])
        if characters_left < 0:
            dropped_indexes.add(index)
    return _SEPARATOR.join(
        [*(item for index, item in enumerate(lines) if index not in dropped_indexes), line]
    )
