"""Errors of the local machines.

MachineError
├── NotRunning        the machine has no PID 1 to run something in
├── ImageMissing      no such image on disk
├── CommandFailed     a host command (ip, debootstrap, mount …) failed
└── BaseBuildFailed   the base image could not be built; phase and log tail
"""

from __future__ import annotations


class MachineError(Exception):
    """Something about a local machine could not be done; the message says what to try."""


class NotRunning(MachineError):  # noqa: N818 - a state, named as people say it
    """The machine is not running."""


class ImageMissing(MachineError):  # noqa: N818 - a state, named as people say it
    """The image is not in the store."""


class CommandFailed(MachineError):  # noqa: N818 - a fact, named as people say it
    """A host command ended with an error."""


class BaseBuildFailed(MachineError):  # noqa: N818 - a fact, named as people say it
    """The base image could not be built."""
