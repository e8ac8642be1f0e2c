"""A disk that ends the process, fills up or tears a write at any one of its operations."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

OPERATIONS = [
    (os, "fsync"),
    (os, "link"),
    (Path, "replace"),
    (Path, "mkdir"),
    (Path, "unlink"),
    (os, "pwrite"),
]


class Killed(BaseException):
    """The process ends here."""


def kill(_call, _args):
    raise Killed


def tear(call, args):
    """Half of a write arrives, and the process ends."""
    if isinstance(args[0], int) and len(args) == 3:  # pwrite
        descriptor, view, offset = args
        call(descriptor, view[: len(view) // 2], offset)
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
