"""A disk that ends the process, fills up or tears a write at any one of its operations."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolkit.training import blockwork

OPERATIONS = [
    *((os, name) for name in ("fsync", "link", "mkdir", "pwrite", "replace", "rmdir", "unlink")),
    (Path, "open"),  # which goes to no function of os
]
# With those that change nothing, or only a time: where a machine dies between them tells nothing.
CALLS = [*OPERATIONS, *((os, name) for name in ("listdir", "open", "preadv", "stat", "utime"))]


class Killed(BaseException):
    """The process ends here, but for what it has to do on its way out."""


def kill(_call, _args):
    raise Killed


def vanish(_call, _args):
    """No word, no `finally`, no other thread: a machine that is gone, with its page cache kept."""
    os.kill(os.getpid(), signal.SIGKILL)


def tear(call, args):
    """Half of a write arrives, and the process ends."""
    if isinstance(args[0], int) and len(args) == 3:  # pwrite
        descriptor, view, offset = args
        call(descriptor, view[: len(view) // 2], offset)
    raise Killed


def fill(_call, _args):
    raise OSError(28, "No space left on device")


def fail(*_):
    raise OSError(5, "Input/output error")


@contextmanager
def strike(
    number: int, fault: Callable[..., Any], operations: Sequence[tuple[Any, str]] = OPERATIONS
) -> Iterator[list[int]]:
    """`fault` in place of the `number`th operation; yields how many were met, as a list."""
    met = []

    def guard(original):
        def call(*args, **kwargs):
            met.append(1)
            if len(met) == number:
                return fault(partial(original, **kwargs), args)
            return original(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in operations:
            patch.setattr(owner, name, guard(getattr(owner, name)))
        yield met


def killed(number: int, work: Callable[[], Any]) -> bool:
    """Do the work in a copy of this process that SIGKILL ends at its `number`th operation.

    False: it had fewer, and did all of the work.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            blockwork.threads.cache_clear()  # they did not come along
            with strike(number, vanish):
                work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}, f"exit code {code}"
    return code != 0
