"""A mark in the job's comment: when the last checkpoint was committed.

An attempt that dies without a word can't say how much of its work came to nothing; accounting
reads it off this mark (toolkit/accounting/attempts.py). The rest of the comment is the user's and
stays.
"""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

from toolkit.training.slurm.job_id import own_record, task_name

PERIOD = 60.0
"""Seconds between two marks: each is a write to slurmctld, and accounting needs no more."""

TIMEOUT = 30.0
LONGEST = 1024
_BETWEEN = " | "
_OURS = "toolkit: "
_MARK = re.compile(r"\s*toolkit:checkpoint=\d+")

Call = Callable[[Sequence[str]], str]


class JobRemark:
    """Says in the background when a checkpoint was committed; failing costs accuracy, no more."""

    def __init__(self, job_id: str, call: Call, name: str = "") -> None:
        self._job_id, self._call, self._name = job_id, call, name or job_id
        self._told: float | None = None
        self._teller: threading.Thread | None = None

    def checkpoint(self, at: float) -> None:
        """Note a checkpoint committed `at` (seconds since the epoch), unless one just was noted."""
        busy = self._teller is not None and self._teller.is_alive()
        if busy or (self._told is not None and at - self._told < PERIOD):
            return
        self._told = at
        self._teller = threading.Thread(target=self._tell, args=(at,), daemon=True)
        self._teller.start()

    def wait(self) -> None:
        """Let what is being said be said; at most as long as scontrol may take twice."""
        if self._teller is not None:
            self._teller.join(2 * TIMEOUT)

    def _tell(self, at: float) -> None:
        try:
            known = json.loads(self._call(["scontrol", "show", "job", self._name, "--json"]))
            job = own_record(known, self._job_id)
            comment = marked(str(job.get("comment") or ""), at)
            self._call(["scontrol", "update", f"jobid={self._name}", f"comment={comment}"])
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
            return


def marked(comment: str, at: float) -> str:
    """The comment with this mark and no older one."""
    mark = f"toolkit:checkpoint={int(at)}"
    kept = _MARK.sub("", comment)[: LONGEST - len(mark) - 1]
    return f"{kept} {mark}".strip()


def noted(comment: str, text: str) -> str:
    """The comment with a line of ours at its end.

    What the user wrote and the checkpoint's mark stay; where it gets too long, our own oldest
    lines go.
    """
    marks = "".join(f" {mark.strip()}" for mark in _MARK.findall(comment))
    parts = [part for part in _MARK.sub("", comment).split(_BETWEEN) if part]
    line = _plain(text)
    while (room := LONGEST - len(_BETWEEN.join([*parts, ""])) - len(marks)) < len(line):
        ours = [at for at, part in enumerate(parts) if part.startswith(_OURS)]
        if not ours:
            line = line[: max(0, room)]
            break
        del parts[ours[0]]
    return f"{_BETWEEN.join([*parts, line] if line else parts)}{marks}".strip()


def _plain(text: str) -> str:
    """Printable, without what quotes or parts a comment; long texts are cut."""
    kept = "".join(char if " " <= char <= "~" and char not in "\"'`\\|" else " " for char in text)
    return " ".join(kept.split())[: LONGEST // 2]


def for_job(
    job_id: str, environment: Mapping[str, str] = os.environ, call: Call | None = None
) -> JobRemark | None:
    """The remark of the job this process is in; None outside of one."""
    if environment.get("SLURM_JOB_ID") != job_id or (call is None and not shutil.which("scontrol")):
        return None
    return JobRemark(job_id, call or _run, task_name(job_id, environment))


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(list(argv), capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return done.stdout
