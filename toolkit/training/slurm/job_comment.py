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
MAX_LENGTH = 1024
_SEPARATOR = " | "
_LINE_PREFIX = "toolkit: "
_MARK = re.compile(r"\s*toolkit:checkpoint=\d+")

Call = Callable[[Sequence[str]], str]


class JobCommentWriter:
    """A background writer of the mark of the last checkpoint.

    A failed write costs accuracy, and no more.
    """

    def __init__(self, job_id: str, call: Call, name: str = "") -> None:
        self._job_id, self._call, self._name = job_id, call, name or job_id
        self._marked_at: float | None = None
        self._writer: threading.Thread | None = None

    def mark_checkpoint(self, at: float) -> None:
        """Note a checkpoint committed at `at` (epoch seconds).

        Nothing is written within PERIOD of the last mark, or while a write is under way.
        """
        is_writing = self._writer is not None and self._writer.is_alive()
        if is_writing or (self._marked_at is not None and at - self._marked_at < PERIOD):
            return
        self._marked_at = at
        self._writer = threading.Thread(target=self._write_mark, args=(at,), daemon=True)
        self._writer.start()

    def wait(self) -> None:
        """Wait for the write that is under way.

        It takes at most twice scontrol's timeout.
        """
        if self._writer is not None:
            self._writer.join(2 * TIMEOUT)

    def _write_mark(self, at: float) -> None:
        try:
            answer = json.loads(self._call(["scontrol", "show", "job", self._name, "--json"]))
            job = own_record(answer, self._job_id)
            comment = with_checkpoint_mark(str(job.get("comment") or ""), at)
            self._call(["scontrol", "update", f"jobid={self._name}", f"comment={comment}"])
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
            return


def with_checkpoint_mark(comment: str, at: float) -> str:
    """Return the comment with this mark and without an older one."""
    mark = f"toolkit:checkpoint={int(at)}"
    user_text = _MARK.sub("", comment)[: MAX_LENGTH - len(mark) - 1]
    return f"{user_text} {mark}".strip()


def with_line(comment: str, text: str) -> str:
    """Return the comment with a line of ours at its end.

    The user's words and the checkpoint's mark stay. When the comment gets too long, our own oldest
    lines are dropped.
    """
    marks = "".join(f" {mark.strip()}" for mark in _MARK.findall(comment))
    parts = [part for part in _MARK.sub("", comment).split(_SEPARATOR) if part]
    line = _printable(text)
    while (free_length := MAX_LENGTH - len(_SEPARATOR.join([*parts, ""])) - len(marks)) < len(line):
        own_indexes = [index for index, part in enumerate(parts) if part.startswith(_LINE_PREFIX)]
        if not own_indexes:
            line = line[: max(0, free_length)]
            break
        del parts[own_indexes[0]]
    return f"{_SEPARATOR.join([*parts, line] if line else parts)}{marks}".strip()


def _printable(text: str) -> str:
    """Return printable text without characters that quote or separate.

    Long texts are cut.
    """
    printable = "".join(
        char if " " <= char <= "~" and char not in "\"'`\\|" else " " for char in text
    )
    return " ".join(printable.split())[: MAX_LENGTH // 2]


def comment_writer_for(
    job_id: str, environment: Mapping[str, str] = os.environ, call: Call | None = None
) -> JobCommentWriter | None:
    """Return the remark of this process's job, None outside of one."""
    if environment.get("SLURM_JOB_ID") != job_id or (call is None and not shutil.which("scontrol")):
        return None
    return JobCommentWriter(job_id, call or _run, task_name(job_id, environment))


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(list(argv), capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return done.stdout
