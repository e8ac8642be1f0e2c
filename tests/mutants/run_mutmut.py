"""Run mutmut, and limit mutants by CPU seconds alone.

After a time mutmut also sends a signal to a mutant's process, by the process's number. It does so
when the mutant has long ended. Another process may have the number by then: a later mutant, which
then counts as noticed although no test failed, or a stranger's process. On a busy machine a slow
mutant gets the signal too.

An endless mutant still ends: by the limit of CPU seconds, or by pytest's `--timeout`.
"""

from __future__ import annotations

from mutmut.__main__ import cli
from mutmut.workers import isolation


def send_no_signal(pid: int, timeout_s: float) -> None:
    """Leave a mutant's process to its limit of CPU seconds."""


if __name__ == "__main__":
    if not callable(getattr(isolation, "register_timeout", None)):
        raise SystemExit("this mutmut sets its time limits elsewhere: see tests/mutants")
    isolation.register_timeout = send_no_signal
    cli()
