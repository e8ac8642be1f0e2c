"""Mark in the job's comment when the last checkpoint was committed.

An attempt that dies without a verdict can't say how much of its work was lost. Accounting reads it
from this mark (toolkit/accounting/attempts.py). The rest of the comment is the user's and stays.
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
"""Seconds between two marks. Each is a write to slurmctld, and accounting needs no more."""

TIMEOUT = 30.0
LONGEST = 1024
_BETWEEN = " | "
_OURS = "toolkit: "
_MARK = re.compile(r"\s*toolkit:checkpoint=\d+")

Call = Callable[[Sequence[str]], str]


class JobRemark:
    """A background writer of the mark of the last checkpoint.

    A failed write costs accuracy, and no more.
    """

    def __init__(self, job_id: str, call: Call, name: str = "") -> None:
        self._job_id, self._call, self._name = job_id, call, name or job_id
        self._told: float | None = None
        self._teller: threading.Thread | None = None

    def checkpoint(self, at: float) -> None:
        """Note a checkpoint committed at `at` (epoch seconds).

        Nothing is written within PERIOD of the last mark, or while a write is under way.
        """
        busy = self._teller is not None and self._teller.is_alive()
        if busy or (self._told is not None and at - self._told < PERIOD):
            return
        self._told = at
        self._teller = threading.Thread(target=self._tell, args=(at,), daemon=True)
        self._teller.start()

    def wait(self) -> None:
        """Wait for the write that is under way.

        It takes at most twice scontrol's timeout.
        """
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
    """Return the comment with this mark and without an older one."""
    mark = f"toolkit:checkpoint={int(at)}"
    kept = _MARK.sub("", comment)[: LONGEST - len(mark) - 1]
    return f"{kept} {mark}".strip()


def noted(comment: str, text: str) -> str:
    """Return the comment with a line of ours at its end.

    The user's words and the checkpoint's mark stay. When the comment gets too long, our own oldest
    lines are dropped.
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
    """Return printable text without characters that quote or separate.

    Long texts are cut.
    """
    kept = "".join(char if " " <= char <= "~" and char not in "\"'`\\|" else " " for char in text)
    return " ".join(kept.split())[: LONGEST // 2]


def for_job(
    job_id: str, environment: Mapping[str, str] = os.environ, call: Call | None = None
) -> JobRemark | None:
    """Return the remark of this process's job, None outside of one."""
    if environment.get("SLURM_JOB_ID") != job_id or (call is None and not shutil.which("scontrol")):
        return None
    return JobRemark(job_id, call or _run, task_name(job_id, environment))


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(list(argv), capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return done.stdout
