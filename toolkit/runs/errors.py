"""Errors of the people's commands about runs.

* ToolkitError
  * RunsError                     runs-unreadable
    - RunNotFound                 run-not-found
    - FolderOfRoot                folder-of-root
    - SweepNotFound               sweep-not-found
    - ReplayRefused               replay-refused
    - TrackingAway                tracking-away
"""

# ruff: noqa: N818 - the names say what happened
from __future__ import annotations

from toolkit.errors import ToolkitError


class RunsError(ToolkitError):
    """The head node's answer about runs is not understood."""

    reason = "runs-unreadable"


class RunNotFound(RunsError):
    """No run matches the reference, or its run folder does not exist."""

    reason = "run-not-found"


class FolderOfRoot(RunsError):
    """A run's folder belongs to root."""

    reason = "folder-of-root"


class SweepNotFound(RunsError):
    """No sweep has that name (yet)."""

    reason = "sweep-not-found"


class ReplayRefused(RunsError):
    """A part of the run does not exist any more, or has changed."""

    reason = "replay-refused"


class TrackingAway(RunsError):
    """MLflow doesn't answer on the head node."""

    reason = "tracking-away"
