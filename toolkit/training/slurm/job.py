"""Ask scontrol and sacct about a job, and act on it, as the job's own user.

Every call may fail: there is no Slurm here, or slurmctld is busy. Then a read returns nothing, and
an action returns False, for the caller has an exit code to fall back on. An attempt that lost the
run does nothing to the job, which may be its successor's: Superseded is raised.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from toolkit.training.attempt.attempt import RETRY_PAUSES, Attempt
from toolkit.training.attempt.fencing import UNCLAIMED, Fence
from toolkit.training.slurm.job_comment import with_line
from toolkit.training.slurm.job_id import own_record, task_name

CANCELLED_TIMEOUT = 10  # seconds: well within KillWait (toolkit/render/settings.py)

TIMEOUT = 5.0
"""Seconds for one call: a spot notice gives 120 s for everything, so no call waits longer."""

Call = Callable[[Sequence[str]], str]
_ACCOUNTING = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s")  # prints times in epoch seconds
FAILURES = (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job's facts as slurmctld has them."""

    log: str = ""
    """The file that the job writes its log to."""
    comment: str | None = None
    """None when the comment could not be read, and so must not be replaced."""
    state: str = ""
    nodes: str = ""
    """One line a node: `name state,flags reason`."""


@dataclass(frozen=True, slots=True)
class AccountedAttempt:
    """An attempt as accounting has it."""

    start: float  # epoch seconds, as `end`
    end: float | None  # None while the attempt runs
    state: str

    def seconds_outside(self, moment: float) -> float:
        """Return by how many seconds a moment lies outside the attempt.

        0.0 for a moment within it.
        """
        return max(0.0, self.start - moment, moment - (self.end or moment))


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node that was down or drained since a moment."""

    node: str
    at: float  # epoch seconds
    line: str  # formatted as a line of JobFacts.nodes


class SlurmJob:
    """A job, and the calls that read or change it.

    After one call of scontrol timed out, no other is made, except to hold the job. `name` is
    scontrol's name for this job and no other (job_id).
    """

    def __init__(
        self,
        job_id: str,
        call: Call,
        name: str = "",
        fence: Fence = UNCLAIMED,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._job_id, self._run, self._fence, self._sleep = job_id, call, fence, sleep
        self.name = name or job_id
        self._has_timed_out = False

    @classmethod
    def of_attempt(cls, attempt: Attempt) -> Self:
        """Return the job that this process is in."""
        return cls(attempt.job_id, run_command, task_name(attempt.job_id), attempt.fence)

    def facts(self) -> JobFacts:
        """Return the facts of slurmctld, empty when it does not answer."""
        try:
            job = own_record(self._read("show", "job", self.name), self._job_id)
        except FAILURES:
            return JobFacts()
        return JobFacts(
            # From 25.05 on, standard_output is the pattern that the job was submitted with.
            log=str(job.get("stdout_expanded") or job.get("standard_output") or ""),
            comment=str(job.get("comment") or ""),
            state=_state_text(job.get("job_state")),
            nodes=self._node_lines(str(job.get("nodes") or "")),
        )

    def accounted_attempts(self) -> Sequence[AccountedAttempt] | None:
        """Return the job's attempts that accounting saw begin.

        None when it does not answer. Before Slurm 24.11 the attempts have no number.
        """
        arguments = [*_ACCOUNTING, "sacct", f"--jobs={self._job_id}"]
        arguments += ["--duplicates", "--allocations", "--noheader", "--parsable2"]
        try:
            output = self._run([*arguments, "--format=JobIDRaw,Start,End,State"])
            rows = [line.split("|", 3) for line in output.splitlines()]
            return [
                AccountedAttempt(float(start), float(end) if end.isdecimal() else None, state)
                for job, start, end, state in rows
                if job == self._job_id and start.isdecimal()
            ]
        except FAILURES:
            return None

    def node_events(self, nodes: Sequence[str], since: float) -> Sequence[NodeEvent]:
        """Return the events that accounting keeps of these nodes.

        They are needed because reconcile returns a lost node to service within a minute. Empty when
        accounting does not answer.
        """
        start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        arguments = [*_ACCOUNTING, "sacctmgr", "--noheader", "--parsable2", "show", "event"]
        arguments += [f"nodes={','.join(nodes)}", f"start={start}"]
        try:
            output = self._run([*arguments, "format=NodeName,Start,State,Reason"])
            rows = [line.split("|", 3) for line in output.splitlines()]
            return [
                NodeEvent(node, float(at), f"{node} {state} {reason}".strip())
                for node, at, state, reason in rows
                if node and at.isdecimal()
            ]
        except FAILURES:
            return ()

    def append_comment(self, facts: JobFacts, text: str) -> bool:
        """Append to the job's comment as `facts` have it.

        Returns whether Slurm did it. An unread comment is left alone, and False returned.
        """
        if facts.comment is None:
            return False
        comment = with_line(facts.comment, text)
        return self._change_job("update", f"jobid={self.name}", f"comment={comment}")

    def requeue_at(self, start: float) -> bool:
        """Requeue the running job, to start at `start` (epoch seconds) or later.

        Returns whether Slurm requeued it. slurmctld keeps a start time that is ahead when it puts a
        requeued job back (batch_requeue_fini in its job_mgr.c). It sends this job SIGTERM, which
        the caller ignores.
        """
        if not self._change_job("requeue", self.name):
            return False
        moment = datetime.fromtimestamp(start).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006
        self._change_job("update", f"jobid={self.name}", f"StartTime={moment}")
        return True

    def requeue_held(self) -> bool:
        """Requeue the running job, held by its user.

        `scontrol release` brings it back. Returns whether Slurm did it.
        """
        self._has_timed_out = False  # an earlier timeout of a read says nothing about this call
        return self._change_job("requeuehold", self.name)

    def hold(self, facts: JobFacts, reason: str) -> tuple[bool, tuple[str, ...]]:
        """Requeue the running job held, with the reason in its comment.

        The comment also says how to go on. Returns whether Slurm did it, and the lines for the
        job's log. Any other end is worse, so it is tried for a minute.
        """
        release = f"scontrol release {self.name}"
        for pause in (*RETRY_PAUSES, 0):
            self._has_timed_out = False
            if facts.comment is None:
                facts = self.facts()
            self.append_comment(facts, f"toolkit: held: {reason}; to go on: {release}")
            if is_held := self.requeue_held():
                break
            self._sleep(pause)
        if not is_held:
            return False, (f"to hold: {reason}", f"Slurm did not hold job {self.name}: it ends now")
        return True, (f"job {self.name} is held: {reason}", f"to continue it: {release}")

    def _node_lines(self, hostlist: str) -> str:
        if not hostlist:
            return ""
        try:
            node_records = self._read("show", "nodes", hostlist)["nodes"]
            node_records = [item for item in node_records if isinstance(item, dict)]
        except FAILURES:
            return ""
        words = (
            (str(node.get("name")), _state_text(node.get("state")), str(node.get("reason") or ""))
            for node in node_records
        )
        return "\n".join(" ".join(line).strip() for line in words)

    def _read(self, *arguments: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads(self._run_scontrol(*arguments, "--json"))
        return answer

    def _change_job(self, *arguments: str) -> bool:
        try:
            self._fence.check()
            self._run_scontrol(*arguments)
        except FAILURES:
            return False
        return True

    def _run_scontrol(self, *arguments: str) -> str:
        if self._has_timed_out:
            raise TimeoutError("slurmctld did not answer before")
        try:
            return self._run(["scontrol", *arguments])
        except subprocess.TimeoutExpired:
            self._has_timed_out = True
            raise


def _state_text(state: object) -> str:
    return ",".join(map(str, state)) if isinstance(state, list) else str(state or "")


def run_command(argv: Sequence[str]) -> str:
    """Run a command and return its output.

    Raises one of FAILURES.
    """
    if shutil.which(argv[0]) is None:
        raise FileNotFoundError(argv[0])
    process = subprocess.run(
        list(argv), capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    return process.stdout


def is_cancelled(
    job_id: str, environment: Mapping[str, str] = os.environ, call: Call | None = None
) -> bool:
    """Return whether somebody cancelled this process's job.

    False also when Slurm does not answer. It is called after SIGTERM, and Slurm kills the job
    KillWait seconds after that. A lost peer or a preemption sends the same signal, and such a job
    is requeued.
    """
    if environment.get("SLURM_JOB_ID") != job_id or (call is None and not shutil.which("scontrol")):
        return False
    try:
        name = task_name(job_id, environment)
        text = (call or _run_for_cancelled)(["scontrol", "show", "job", name, "--oneliner"])
    except (OSError, subprocess.SubprocessError):
        return False
    return re.search(r"\bJobState=CANCELLED\b", text) is not None


def _run_for_cancelled(argv: Sequence[str]) -> str:
    process = subprocess.run(
        list(argv), capture_output=True, text=True, timeout=CANCELLED_TIMEOUT, check=True
    )
    return process.stdout
