"""A disk that ends the process, fills up or tears a write at any one of its operations."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolkit.training.shard import HashingWriter

OPERATIONS = [
    (os, "fsync"),
    (os, "link"),
    (Path, "replace"),
    (Path, "mkdir"),
    (Path, "unlink"),
    (HashingWriter, "write"),
]


class Killed(BaseException):
    """The process ends here."""


def kill(_call, _args):
    raise Killed


def tear(call, args):
    """Half of a write arrives, and the process ends."""
    if isinstance(args[0], HashingWriter):
        view = memoryview(args[1]).cast("B")
        call(args[0], view[: len(view) // 2])
    raise Killed


def fill(_call, _args):
    raise OSError(28, "No space left on device")


@contextmanager
def strike(number, fault):
    """`fault` in place of the `number`th operation; yields how many were met, as a list."""
    met = []

    def guard(original):
        def call(*args, **kwargs):
            met.append(1)
            if len(met) == number:
                return fault(original, args)
            return original(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in OPERATIONS:
            patch.setattr(owner, name, guard(getattr(owner, name)))
        yield met
