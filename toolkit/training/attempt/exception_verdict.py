"""What an exception says about the run: the script's own fault, or a rank that went away?

The distinction matters most on the ranks that are still alive when a machine goes: their error
comes seconds before Slurm knows, and a job that then exits like a failed one is not brought back.
"""

import re

from toolkit.training.attempt import verdict
from toolkit.training.attempt.fencing import Superseded
from toolkit.training.attempt.sigterm import Terminated
from toolkit.training.attempt.stop_request import Stopped
from toolkit.training.attempt.verdict import Verdict

# gloo, NCCL and the TCP store, as they word the loss of a peer (torch 2.9 to 2.13).
_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset)|broken pipe|socket (timeout|closed)|recv\w* failed"
    r"|remote process exited|nccl remote error|timed out waiting|watchdog caught collective",
    re.IGNORECASE,
)


def on_purpose(error: BaseException | None) -> bool:
    """Whether the script has left its training as one does that is over: by its end, or so."""
    return error is None or (isinstance(error, SystemExit) and error.code in (0, None))


def verdict_of(error: BaseException, saved_step: int) -> Verdict:
    """The verdict for an attempt that an exception ended."""
    text = f"{type(error).__name__}: {error}"[:2000]
    if isinstance(error, Stopped):
        return error.word
    if isinstance(error, Terminated):
        return verdict.resume(saved_step, "terminated", "the worker was sent SIGTERM")
    if isinstance(error, Superseded):
        return verdict.resume(saved_step, "superseded", str(error))
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
        return verdict.failed(saved_step, f"SystemExit: {error.code}", code)
    if isinstance(error, RuntimeError | OSError) and _PEER_LOST.search(text):
        return verdict.resume(saved_step, "peer-lost", text)
    return verdict.failed(saved_step, text)
