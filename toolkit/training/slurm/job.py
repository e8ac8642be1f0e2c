"""What a job can ask and say about itself through scontrol and sacct, as its own user.

Every call may fail (no Slurm here, a busy slurmctld): reading then gives nothing, and acting says
so, for the caller has an exit code to fall back on. Who is not the owner of the run any more does
nothing to the job, which may be its successor's: Superseded is raised.
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

from toolkit.training.attempt.attempt import PATIENCE, Attempt
from toolkit.training.attempt.fencing import UNCLAIMED, Owner
from toolkit.training.slurm.job_comment import noted
from toolkit.training.slurm.job_id import own_record, task_name

CANCELLED_TIMEOUT = 10  # seconds: within the 30 (KillWait) that SIGTERM leaves

TIMEOUT = 5.0
"""A spot notice gives 120 s for everything: what slurmctld can't say by then is done without."""

Call = Callable[[Sequence[str]], str]
_ACCOUNTING = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s")  # times in seconds
FAILURES = (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """`nodes`: a line a node, `name state,flags reason`. `log`: where the job writes. `comment`:
    None where it could not be read, and so must not be replaced.
    """

    log: str = ""
    comment: str | None = None
    state: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class Accounted:
    """An attempt as accounting has it; `end` is None while it is not over."""

    start: float
    end: float | None
    state: str

    def off(self, moment: float) -> float:
        """The seconds by which a moment is outside the attempt's time; 0.0 within it."""
        return max(0.0, self.start - moment, moment - (self.end or moment))


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """That a node was down or drained since a moment. `said`: as a line of JobFacts.nodes."""

    node: str
    at: float
    said: str


class SlurmJob:
    """One job and the calls that tell of it. A scontrol that took too long is not asked again, but
    to hold the job.

    `name`: how scontrol names this job and no other (job_id).
    """

    def __init__(
        self,
        job_id: str,
        call: Call,
        name: str = "",
        owner: Owner = UNCLAIMED,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._job_id, self._run, self._owner, self._sleep = job_id, call, owner, sleep
        self.name = name or job_id
        self._deaf = False

    @classmethod
    def of(cls, attempt: Attempt) -> Self:
        """The job that this process is in."""
        return cls(attempt.job_id, run, task_name(attempt.job_id), attempt.owner)

    def facts(self) -> JobFacts:
        """What slurmctld knows; empty when it can't be asked."""
        try:
            job = own_record(self._read("show", "job", self.name), self._job_id)
        except FAILURES:
            return JobFacts()
        return JobFacts(
            log=str(job.get("standard_output") or ""),
            comment=str(job.get("comment") or ""),
            state=_words(job.get("job_state")),
            nodes=self._nodes(str(job.get("nodes") or "")),
        )

    def accounted(self) -> Sequence[Accounted] | None:
        """Its attempts that accounting saw begin; None where it does not answer. They have no
        number before Slurm 24.11.
        """
        show = [*_ACCOUNTING, "sacct", f"--jobs={self._job_id}"]
        show += ["--duplicates", "--allocations", "--noheader", "--parsable2"]
        try:
            said = self._run([*show, "--format=JobIDRaw,Start,End,State"])
            rows = [line.split("|", 3) for line in said.splitlines()]
            return [
                Accounted(float(start), float(end) if end.isdecimal() else None, state)
                for job, start, end, state in rows
                if job == self._job_id and start.isdecimal()
            ]
        except FAILURES:
            return None

    def node_events(self, nodes: Sequence[str], since: float) -> Sequence[NodeEvent]:
        """What accounting keeps of these nodes: reconcile has them serve again within a minute."""
        start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        show = [*_ACCOUNTING, "sacctmgr", "--noheader", "--parsable2", "show", "event"]
        show += [f"nodes={','.join(nodes)}", f"start={start}"]
        try:
            said = self._run([*show, "format=NodeName,Start,State,Reason"])
            rows = [line.split("|", 3) for line in said.splitlines()]
            return [
                NodeEvent(node, float(at), f"{node} {state} {reason}".strip())
                for node, at, state, reason in rows
                if node and at.isdecimal()
            ]
        except FAILURES:
            return ()

    def note(self, facts: JobFacts, text: str) -> bool:
        """Append to the job's comment as `facts` have it; what is there stays, known or not."""
        if facts.comment is None:
            return False
        comment = noted(facts.comment, text)
        return self._does("update", f"jobid={self.name}", f"comment={comment}")

    def requeue_at(self, start: float) -> bool:
        """Requeue the running job, not to start before `start`.

        slurmctld keeps a start time that is ahead when it puts a requeued job back
        (batch_requeue_fini in its job_mgr.c), and sends this job SIGTERM: the caller ignores it.
        """
        if not self._does("requeue", self.name):
            return False
        moment = datetime.fromtimestamp(start).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006
        self._does("update", f"jobid={self.name}", f"StartTime={moment}")
        return True

    def requeue_held(self) -> bool:
        """Requeue the running job, held by its user: `scontrol release` brings it back."""
        self._deaf = False  # that a question took too long says nothing of this
        return self._does("requeuehold", self.name)

    def hold(self, facts: JobFacts, reason: str) -> tuple[bool, tuple[str, ...]]:
        """Requeue the running job held, its comment saying why and how to go on.

        Whether Slurm did it, and what to say in the job's log. No other end is as good: it is tried
        for a minute.
        """
        release = f"scontrol release {self.name}"
        for pause in (*PATIENCE, 0):
            self._deaf = False
            if facts.comment is None:
                facts = self.facts()
            self.note(facts, f"toolkit: held: {reason}; to go on: {release}")
            if held := self.requeue_held():
                break
            self._sleep(pause)
        next_step = f"to go on: {release}" if held else "Slurm did not hold it: it ends here"
        return held, (f"held: {reason}", next_step)

    def _nodes(self, hostlist: str) -> str:
        if not hostlist:
            return ""
        try:
            found = self._read("show", "nodes", hostlist)["nodes"]
            found = [item for item in found if isinstance(item, dict)]
        except FAILURES:
            return ""
        return "\n".join(
            f"{node.get('name')} {_words(node.get('state'))} {node.get('reason') or ''}".strip()
            for node in found
        )

    def _read(self, *arguments: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self._call(*arguments, "--json"))
        return found

    def _does(self, *arguments: str) -> bool:
        try:
            self._owner.check()
            self._call(*arguments)
        except FAILURES:
            return False
        return True

    def _call(self, *arguments: str) -> str:
        if self._deaf:
            raise TimeoutError("slurmctld did not answer before")
        try:
            return self._run(["scontrol", *arguments])
        except subprocess.TimeoutExpired:
            self._deaf = True
            raise


def _words(state: object) -> str:
    return ",".join(map(str, state)) if isinstance(state, list) else str(state or "")


def run(argv: Sequence[str]) -> str:
    """The real call. Raises one of FAILURES."""
    if shutil.which(argv[0]) is None:
        raise FileNotFoundError(argv[0])
    done = subprocess.run(list(argv), capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return done.stdout


def cancelled(
    job_id: str, environment: Mapping[str, str] = os.environ, call: Call | None = None
) -> bool:
    """Whether somebody cancelled this process's job; False also where Slurm can't be asked.

    Asked after SIGTERM, within the 30 s (KillWait) that Slurm leaves it: a lost peer or a
    preemption sends the same signal, and those come back.
    """
    if environment.get("SLURM_JOB_ID") != job_id or (call is None and not shutil.which("scontrol")):
        return False
    try:
        name = task_name(job_id, environment)
        text = (call or _run)(["scontrol", "show", "job", name, "--oneliner"])
    except (OSError, subprocess.SubprocessError):
        return False
    return re.search(r"\bJobState=CANCELLED\b", text) is not None


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(
        list(argv), capture_output=True, text=True, timeout=CANCELLED_TIMEOUT, check=True
    )
    return done.stdout
