"""Tell from an exception whether the script failed or a rank went away.

The ranks that stay alive when an instance goes depend on it. Their error comes seconds before Slurm
knows of the loss. If the job then exited like a failed one, it would not be requeued.
"""

import re

from toolkit.training.attempt import verdict
from toolkit.training.attempt.sigterm import Terminated
from toolkit.training.attempt.stop_request import Stopped
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.errors import Superseded

# The words in which gloo, NCCL and the TCP store report a lost peer (torch 2.9 to 2.13).
_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset)|broken pipe|socket (timeout|closed)|recv\w* failed"
    r"|remote process exited|nccl remote error|timed out waiting|watchdog caught collective",
    re.IGNORECASE,
)


def is_clean_exit(error: BaseException | None) -> bool:
    """Return whether the script left its training without a failure.

    True at the end of the `with` block and after `sys.exit()` or `sys.exit(0)`.
    """
    return error is None or (isinstance(error, SystemExit) and error.code in (0, None))


def verdict_of(error: BaseException, saved_step: int) -> Verdict:
    """Return the verdict for an attempt that an exception ended."""
    text = f"{type(error).__name__}: {error}"[:2000]
    if isinstance(error, Stopped):
        return error.verdict
    if isinstance(error, Terminated):
        return verdict.resume(saved_step, "terminated", "this rank got SIGTERM")
    if isinstance(error, Superseded):
        return verdict.resume(saved_step, "superseded", str(error))
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
        return verdict.failed(saved_step, f"SystemExit: {error.code}", code)
    if isinstance(error, RuntimeError | OSError) and _PEER_LOST.search(text):
        return verdict.resume(saved_step, "peer-lost", text)
    return verdict.failed(saved_step, text)
