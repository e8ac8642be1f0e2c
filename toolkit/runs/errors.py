"""What can go wrong when runs are asked for.

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
    """The head's answer about runs makes no sense."""

    reason = "runs-unreadable"


class RunNotFound(RunsError):
    """No run is meant by what was given, or its folder is gone."""

    reason = "run-not-found"


class FolderOfRoot(RunsError):
    """A run is said to be in a folder of root's."""

    reason = "folder-of-root"


class SweepNotFound(RunsError):
    """No sweep has that name (yet)."""

    reason = "sweep-not-found"


class ReplayRefused(RunsError):
    """Something of the run is not there any more, or not what it was."""

    reason = "replay-refused"


class TrackingAway(RunsError):
    """MLflow doesn't answer on the head node."""

    reason = "tracking-away"
